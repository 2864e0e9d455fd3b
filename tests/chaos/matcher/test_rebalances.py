"""Partitions change hands in the middle of model calls and of batch writes."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from room_testing.matching import Matching
from room_testing.plugin import StartService
from room_testing.scripted_llm import ScriptedLlm

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(300)]

SOURCES = 8
EACH = 40


async def test_members_that_come_go_and_die_decide_each_event_once(
    matching: Matching, start_service: StartService
) -> None:
    sources = [await matching.source(await matching.instance(), criteria=["a push"]) for _ in range(SOURCES)]
    async with ScriptedLlm(lambda text: "yes" if '"push"' in text else "no") as llm:
        llm.delays = {"payload": 0.3}
        settings = matching.environment(llm.url, ROOM_MATCHER__LEDGER_SECONDS="1", ROOM_LLM__CONCURRENCY="16")
        first = await asyncio.to_thread(start_service, "room_matcher", settings)
        sent: list[UUID] = []

        async def load() -> None:
            for number in range(EACH):
                for place, source in enumerate(sources):
                    what = b"push" if number % 2 else b"other"
                    body = b'{"what":"%s","n":%d}' % (what, number)
                    sent.append(await matching.send(source, body, partition=4 * place))
                await asyncio.sleep(0.3)

        loading = asyncio.create_task(load())
        await asyncio.sleep(2)
        second = await asyncio.to_thread(start_service, "room_matcher", settings)
        await asyncio.to_thread(first.stop)
        third = await asyncio.to_thread(start_service, "room_matcher", settings)
        second.kill()
        await loading
        outcomes = [row["outcome"] for delivery_id in sent for row in await matching.decided(delivery_id)]
        assert third.answers()
        assert (outcomes.count("matched"), outcomes.count("no_match")) == (SOURCES * EACH // 2, SOURCES * EACH // 2)
        # A member that dies or must give partitions away pays for what it had in flight, at most.
        assert len(llm.calls) <= SOURCES * EACH + 3 * 16 + 40
    for source in sources:
        assert len(await matching.backlog(source.instance_id)) == EACH // 2
