"""The chat completions wire format: request bodies out, completions in. Pure and total on outside input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, EventRejected, ToolCall


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a model takes of the parameters Room can do without; learned from its refusals."""

    temperature: bool = True
    limit: str | None = "max_completion_tokens"

    def without(self, parameter: str) -> Dialect:
        """The dialect after ``parameter`` was refused."""
        if parameter == "temperature":
            return replace(self, temperature=False)
        if parameter == self.limit == "max_completion_tokens":
            return replace(self, limit="max_tokens")
        return replace(self, limit=None) if parameter == self.limit else self


def request_body(request: ChatRequest, model: str, dialect: Dialect) -> bytes:
    """The JSON body of ``request`` for ``model``."""
    body: dict[str, object] = {"model": model, "messages": [dict(message) for message in request.messages]}
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    if request.temperature is not None and dialect.temperature:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None and dialect.limit is not None:
        body[dialect.limit] = request.max_output_tokens
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:  # lone surrogates or integers past 64 bits, which the json module writes
        return json.dumps(body).encode()


def decode(content: bytes) -> object:
    """The JSON of an answer, or its text where it is none."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content[:4_000].decode("utf-8", "replace")


def completion(body: object, model: str) -> Completion:
    """The completion in a 200 answer.

    Raises ``DependencyUnavailable("llm", "malformed")`` for what no chat completion looks like, and ``EventRejected``
    where the provider answers as it should but has no usable answer to this prompt.
    """
    if not isinstance(body, Mapping) or not isinstance(body.get("choices"), Sequence):
        raise DependencyUnavailable("llm", "malformed")
    choices = body["choices"]
    if not choices:
        raise EventRejected("no_choices")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise DependencyUnavailable("llm", "malformed")
    reason = _text(choice.get("finish_reason")) or "stop"
    text = _content(message.get("content"))
    calls = _tool_calls(message.get("tool_calls"))
    if reason == "content_filter":
        raise EventRejected("content_filter")
    if _text(message.get("refusal")):
        raise EventRejected("refused")
    if reason == "length" and not text.strip() and not calls:
        raise EventRejected("truncated")
    usage = body.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    details = counts.get("prompt_tokens_details")
    return Completion(
        text=text,
        tool_calls=calls,
        finish_reason=reason,
        input_tokens=_count(counts.get("prompt_tokens")),
        output_tokens=_count(counts.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0,
        model=_text(body.get("model")) or model,
    )


def _tool_calls(value: object) -> tuple[ToolCall, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    calls = []
    for index, item in enumerate(value):
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(function, Mapping) or not _text(function.get("name")):
            raise DependencyUnavailable("llm", "malformed")
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):  # some local servers send the object itself
            arguments = orjson.dumps(arguments).decode()
        calls.append(ToolCall(_text(item.get("id")) or f"call_{index}", _text(function["name"]), _text(arguments)))
    return tuple(calls)


def _content(value: object) -> str:
    """A message's text; a list of parts is what some servers send for it."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
