"""``python -m room_testing.real_model``: whole cycles on a real server with a real model, through the real client.

Two cycles run in this process, on a real PostgreSQL. In the first the model's own answers count: it calls no tools,
so that the cycle asks once more and then gives the events back. In the second every request goes to the server too, and
has to be answered, but what counts is a script that calls tools: the server judges a whole conversation with parallel
calls, results of tools, results that are errors, and the question at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from room_common.llm.openai_adapter import OpenAiLlm
from room_common.llm.port import ChatRequest, Completion
from room_common.llm.settings import LlmSettings
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_local.parts.kafka_jars import available
from room_testing.llama_server import API_KEY, LlamaServer
from room_testing.parts import Parts, choose
from room_testing.running import Running, SeededRoom
from room_testing.staging import Stage, call, mark, tell, text

BODY = b'{"name": "Ada", "stage": "customer", "email": "ada@example.test"}'


@dataclass
class Recorded:
    """The real client; ``script`` answers in its place, once the server has accepted the request."""

    real: OpenAiLlm
    script: list[Completion] = field(default_factory=list)
    seen: list[tuple[ChatRequest, Completion, float]] = field(default_factory=list)

    async def complete(self, request: ChatRequest) -> Completion:
        """Ask the server. Raises what the client raises: a refusal ends the cycle, and the check."""
        began = time.monotonic()
        answer = await self.real.complete(request)
        self.seen.append((request, answer, time.monotonic() - began))
        return self.script.pop(0) if self.script else answer


def roles(request: ChatRequest) -> str:
    """The shape of a request: its messages by their first letters, and how many tools it offers."""
    letters = "".join(str(message["role"])[0] for message in request.messages)
    return f"{letters} ({len(request.tools)} tools)"


def report(name: str, llm: Recorded, end: str) -> None:
    """What the server was asked and how it answered."""
    print(f"{name}: {len(llm.seen)} requests, cycle {end}")
    for request, answer, seconds in llm.seen:
        calls = f", calls {len(answer.tool_calls)} tools" if answer.tool_calls else ""
        print(
            f"  {roles(request)}: {answer.input_tokens} prompt tokens, {answer.output_tokens} of answer"
            f"{calls}, {seconds:.1f} s: {' '.join(answer.text.split())[:60]!r}",
            flush=True,
        )


async def by_itself(stage: Stage, real: OpenAiLlm) -> list[str]:
    """The model's own answers; returns what was wrong."""
    room = await stage.world.room(budget=None)
    await stage.world.event(room, BODY)
    await stage.world.reply(room, "What is new?")
    llm = Recorded(real)
    end = await (await stage.cycle(room, llm, max_output_tokens=64, call_seconds=120.0)).run()
    report("by itself", llm, end)
    wrong = [] if end == "succeeded" else [f"the cycle ended as {end}"]
    if [len(request.messages) for request, _, _ in llm.seen][:1] != [2]:
        wrong.append("the first request is not the system and one user message")
    (cycle,) = await stage.world.cycles(room)
    reported = sum(answer.input_tokens for _, answer, _ in llm.seen)
    if not reported or cycle["input_tokens"] != reported:
        wrong.append(f"{cycle['input_tokens']} prompt tokens were counted, {reported} were reported")
    return wrong


async def with_tools(stage: Stage, real: OpenAiLlm) -> list[str]:
    """A script that uses tools, while the server judges every request; returns what was wrong."""
    room = await stage.world.room(budget=None)
    first, second = await stage.world.event(room, BODY), await stage.world.event(room, BODY)
    llm = Recorded(
        real,
        [
            call(tell("Ada is a customer."), mark(first)),
            call(("no_such_tool", "{}"), ("defer_event", '{"minutes": "soon"}')),
            text("NO_MESSAGE"),
            call(mark(second)),
            text("NO_MESSAGE"),
        ],
    )
    end = await (await stage.cycle(room, llm, max_output_tokens=64, call_seconds=120.0)).run()
    report("with tools", llm, end)
    wrong = [] if end == "succeeded" else [f"the cycle ended as {end}"]
    return [*wrong, *await _unfinished(stage, room, [roles(request) for request, _, _ in llm.seen])]


async def _unfinished(stage: Stage, room: SeededRoom, shapes: Sequence[str]) -> list[str]:
    wrong = []
    asked = ["su (3 tools)", "suatt (3 tools)", "suattatt (3 tools)", "suattattau (3 tools)", "suattattauat (3 tools)"]
    if list(shapes) != asked:
        wrong.append(f"the requests were {shapes}")
    if any(event["status"] != "completed" for event in await stage.world.events(room)):
        wrong.append("an event is not completed")
    if len(await stage.world.messages(room)) != 1:
        wrong.append("not one message was written")
    return wrong


async def run(dsn: str, url: str) -> list[str]:
    """Both cycles; returns what was wrong."""
    llm = LlmSettings.model_validate(
        {"base_url": url, "api_key": API_KEY, "standard_model": "smollm2", "fast_model": "smollm2", "max_retries": 0}
    )
    registry = CollectorRegistry()
    real = OpenAiLlm(llm, registry)
    database = Database(DatabaseSettings.model_validate({"dsn": dsn}), application_name="real-model", registry=registry)
    await database.start()
    try:
        stage = Stage(database, Running(dsn))
        return [*await by_itself(stage, real), *await with_tools(stage, real)]
    finally:
        await database.stop()
        await real.stop()


def main() -> int:
    """Run them; 0 when nothing was wrong."""
    parts = Parts(choose({**os.environ, "ROOM_TEST_PARTS": "wheels"}, available))
    server = LlamaServer(Path(tempfile.mkdtemp(prefix="room-llama-")))
    try:
        server.start()
        wrong = asyncio.run(run(parts.create_database(), server.url))
    finally:
        server.stop()
        parts.close()
    for line in wrong:
        print(f"WRONG: {line}")
    if wrong:
        print(f"log of the server: {server.log}")
        return 1
    print("every request was accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
