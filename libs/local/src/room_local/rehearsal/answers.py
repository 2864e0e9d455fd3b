"""From a chat completion request to the rehearsal model's answer, in OpenAI's wire shape. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from room_local.rehearsal import supervisor, verdict
from room_local.rehearsal.prompts import criterion, data

MODELS = ("rehearsal-fast", "rehearsal-standard")
GREETING = (
    "This is the rehearsal model: scripted answers from simple rules, no language model. It only plays Room's part."
)
BYTES_PER_TOKEN = 4


class BadRequest(Exception):
    """A request that no chat completion can answer. The message says why."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Answered:
    """The response's body, and what kind of answer it is (``yes``, ``no``, ``greeting`` or the supervisor's step)."""

    kind: str
    body: dict[str, object]


def answer(request: object, *, created: int) -> Answered:
    """Answer ``request``. The same conversation gets the same answer, ``created`` (epoch seconds) aside.

    Raises BadRequest where the body is no chat completion request.
    """
    if not isinstance(request, Mapping):
        raise BadRequest("", "the body is a JSON object")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
        raise BadRequest("messages", "messages is a list of at least one message")
    if not isinstance(request.get("model"), str):
        raise BadRequest("model", "model is a string")
    if request.get("stream"):
        raise BadRequest("stream", "the rehearsal model does not stream")
    tools = _tool_names(request.get("tools"))
    step = supervisor.next_step(messages, tools) if tools else _classify(messages)
    message: dict[str, object] = {"role": "assistant", "content": step.text, "refusal": None}
    asked = orjson.dumps([messages, request.get("tools")], option=orjson.OPT_NON_STR_KEYS)
    identity = hashlib.sha256(asked).hexdigest()[:24]
    written = len(step.text.encode("utf-8", "replace"))
    if step.tool is not None:
        arguments = orjson.dumps(step.arguments).decode()
        written += len(arguments.encode())
        function = {"name": step.tool, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{identity}", "type": "function", "function": function}]
    prompt_tokens, completion_tokens = -(-len(asked) // BYTES_PER_TOKEN), -(-written // BYTES_PER_TOKEN)
    body: dict[str, object] = {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": created,
        "model": "rehearsal",
        "system_fingerprint": "rehearsal, no language model",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if step.tool is not None else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
    return Answered(step.kind, body)


def _classify(messages: Sequence[Mapping[str, object]]) -> supervisor.Step:
    prompts = [message.get("content") for message in messages if message.get("role") == "user"]
    prompt = prompts[-1] if prompts and isinstance(prompts[-1], str) else ""
    payload = data(prompt)
    if not payload:
        return supervisor.Step("greeting", GREETING)
    text = verdict.answer(criterion(prompt), payload)
    return supervisor.Step(text.partition(" ")[0], text)


def _tool_names(tools: object) -> frozenset[str]:
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
    return frozenset(str(function.get("name")) for function in functions if isinstance(function, Mapping))
