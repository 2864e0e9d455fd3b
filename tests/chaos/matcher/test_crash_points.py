"""The matcher is killed at every crash point of its path, one after the other; nothing is lost and nothing is twice."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

import room_common.kafka.executor
import room_matcher
from room_testing.matching import Matching, SeededSource
from room_testing.plugin import StartService
from room_testing.scripted_llm import Reply, ScriptedLlm

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(600)]


def points() -> list[str]:
    """Every name in the sources of the path."""
    files = [Path(room_common.kafka.executor.__file__), *Path(next(iter(room_matcher.__path__))).rglob("*.py")]
    found = {name for file in files for name in re.findall(r'crash_point\("([^"]+)"\)', file.read_text())}
    return sorted(found)


def groups(size: int = 5) -> list[list[str]]:
    """A few points each: every start serves as successor of one process and as victim of the next point."""
    names = points()
    return [names[start : start + size] for start in range(0, len(names), size)]


def script(text: str) -> Reply:
    payload, _, criterion = text.rpartition("Criterion:")
    if "poison" in payload:
        return 400
    return "yes" if "push" in criterion and "push" in payload else "no"


@dataclass
class Sent:
    """A delivery, how many items it has and what their outcome is."""

    id: UUID
    items: int
    outcome: str


class Traffic:
    """Something for every branch of the path, on one partition."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.sent: list[Sent] = []

    async def prepare(self) -> None:
        instance = await self.matching.instance()
        self.plain: SeededSource = await self.matching.source(instance, criteria=["nothing", "a push"])
        self.array = await self.matching.source(await self.matching.instance(), "hubspot", criteria=["a push"])
        self.flood = await self.matching.source(await self.matching.instance(), criteria=["a push"])

    async def send(self, number: int) -> None:
        await self._send(self.flood, b'{"what":"push","slow":%d}' % (100 * number), 1, "matched")
        for more in range(3):
            await self._send(self.flood, b'{"what":"push","slow":%d}' % (100 * number + 1 + more), 1, "matched")
        await self._send(self.plain, b'{"what":"push","n":%d}' % number, 1, "matched")
        await self._send(self.plain, b'{"what":"nothing","n":%d}' % number, 1, "no_match")
        await self._send(self.plain, b"null", 1, "undecodable")
        # Could be several items, some of which have a row: that is looked at before it is stopped.
        await self._send(self.array, b"[{", 1, "undecodable")
        await self._send(self.plain, b'{"what":"poison","n":%d}' % number, 1, "dead")
        elements = b",".join(b'{"eventId":%d,"what":"push"}' % (10 * number + item) for item in range(3))
        await self._send(self.array, b"[" + elements + b"]", 3, "matched")

    async def _send(self, source: SeededSource, body: bytes, items: int, outcome: str) -> None:
        self.sent.append(Sent(await self.matching.send(source, body, partition=5), items, outcome))


def test_there_is_a_crash_point_at_every_step() -> None:
    names = points()
    assert len(names) >= 28
    assert {name.partition(".")[0] for name in names} == {"matcher", "executor"}


@pytest.mark.parametrize("names", groups(), ids=lambda names: names[0])
async def test_a_kill_at_each_point_loses_nothing_and_doubles_nothing(
    matching: Matching, start_service: StartService, names: list[str]
) -> None:
    traffic = Traffic(matching)
    await traffic.prepare()
    async with ScriptedLlm(script) as llm:
        llm.error_body = {"message": "flagged", "code": "content_filter"}
        llm.delays = {'"slow"': 0.5}
        settings = matching.environment(llm.url, ROOM_MATCHER__SOURCE_SHARE="1")
        for number, name in enumerate(names):
            await traffic.send(number)
            doomed = await asyncio.to_thread(start_service, "room_matcher", settings, crash=name, wait=False)
            assert await asyncio.to_thread(doomed.wait_exit, 90) == -9, name
        await asyncio.to_thread(start_service, "room_matcher", settings)
        for sent in traffic.sent:
            rows = await matching.decided(sent.id, items=sent.items)
            assert [(row["item"], row["outcome"]) for row in rows] == [
                (item, sent.outcome) for item in range(sent.items)
            ]
    matched = sum(sent.items for sent in traffic.sent if sent.outcome == "matched")
    events = [
        event
        for source in (traffic.plain, traffic.array, traffic.flood)
        for event in await matching.backlog(source.instance_id)
    ]
    assert len(events) == matched
    assert {event["attempts"] for event in events} == {0}
    for sent in traffic.sent:
        if sent.outcome == "dead":
            assert await matching.dead_letters(sent.id) != []
