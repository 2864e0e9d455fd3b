"""The matcher is killed between its durable steps; its successor brings each delivery to exactly one outcome."""

from __future__ import annotations

import asyncio

import pytest

from room_local.parts.processes import wait_until
from room_testing.matching import Matching
from room_testing.parts import Parts
from room_testing.plugin import StartService
from room_testing.scripted_llm import Reply, ScriptedLlm

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(180)]


def script(text: str) -> Reply:
    if "poison" in text:
        return 400
    return "yes" if '"what":"push"' in text else "no"


@pytest.mark.parametrize(
    ("point", "calls"),
    [("matcher.after_llm", 2), ("matcher.before_commit", 2), ("matcher.after_commit", 1)],
)
async def test_a_match_is_one_backlog_row(
    matching: Matching, start_service: StartService, point: str, calls: int
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        doomed = start_service("room_matcher", matching.environment(llm.url), crash=point)
        delivery_id = await matching.send(source, b'{"what": "push"}', partition=3)
        assert await asyncio.to_thread(doomed.wait_exit) == -9
        before = len(await matching.backlog(source.instance_id))
        assert before == (1 if point == "matcher.after_commit" else 0)
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        marker = await matching.send(source, b'{"what": "nothing"}', partition=3)
        await matching.decided(marker)
        (row,) = await matching.decided(delivery_id)
        assert row["outcome"] == "matched"
        assert llm.calls_about('"what":"push"') == calls
    (event,) = await matching.backlog(source.instance_id)
    assert (event["delivery_id"], event["status"], event["attempts"]) == (delivery_id, "pending", 0)
    (activity,) = await matching.query("select * from room_activity_log where instance_id = %s", source.instance_id)
    assert activity["kind"] == "event_matched"


@pytest.mark.parametrize("point", ["matcher.before_rows_commit", "matcher.after_rows_commit"])
async def test_a_drop_is_one_ledger_row(matching: Matching, start_service: StartService, point: str) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        doomed = start_service("room_matcher", matching.environment(llm.url), crash=point)
        sent = [await matching.send(source, b"", partition=3)]
        assert await asyncio.to_thread(doomed.wait_exit) == -9
        sent.append(await matching.send(source, b"null", partition=3))
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        reasons = [(await matching.decided(delivery_id))[0]["reason"] for delivery_id in sent]
    assert reasons == ["empty", "not_an_object"]


@pytest.mark.parametrize("point", ["matcher.before_dead_publish", "matcher.after_dead_publish"])
async def test_a_dead_one_is_in_the_ledger_once_and_never_only_there(
    matching: Matching, start_service: StartService, point: str
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        llm.error_body = {"message": "flagged", "code": "content_filter"}
        doomed = start_service("room_matcher", matching.environment(llm.url), crash=point)
        delivery_id = await matching.send(source, b'{"what": "poison"}', partition=3)
        assert await asyncio.to_thread(doomed.wait_exit) == -9
        assert await matching.outcomes(delivery_id) == []
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        (row,) = await matching.decided(delivery_id)
        assert (row["outcome"], row["reason"]) == ("dead", "content_filter (400)")
    copies = await matching.dead_letters(delivery_id)
    assert len(copies) == (2 if point == "matcher.after_dead_publish" else 1)


async def test_what_the_model_said_is_remembered_across_a_kill(
    matching: Matching, start_service: StartService, redis_url: str
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    marker = source.id.hex
    body = b'{"what":"push","marker":"%s"}' % marker.encode()
    async with ScriptedLlm(script) as llm:
        environment = matching.environment(llm.url, ROOM_REDIS__URL=redis_url, ROOM_REDIS__TIMEOUT_SECONDS="5")
        doomed = start_service("room_matcher", environment, crash="matcher.after_llm")
        delivery_id = await matching.send(source, body)
        assert await asyncio.to_thread(doomed.wait_exit) == -9
        await asyncio.to_thread(start_service, "room_matcher", environment)
        (row,) = await matching.decided(delivery_id)
        assert (row["outcome"], row["llm_calls"], row["tokens"]) == ("matched", 0, 0)
        assert llm.calls_about(marker) == 1


async def test_a_half_decided_delivery_whose_source_is_disabled_leaves_no_item_without_outcome(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), "hubspot", criteria=["a push"])
    body = b"[" + b", ".join(b'{"eventId":%d,"what":"push"}' % number for number in range(20)) + b"]"
    async with ScriptedLlm(script) as llm:
        doomed = start_service("room_matcher", matching.environment(llm.url), crash="matcher.after_commit:3")
        delivery_id = await matching.send(source, body)
        assert await asyncio.to_thread(doomed.wait_exit) == -9
        decided = len(await matching.outcomes(delivery_id))
        assert 3 <= decided < 20
        await matching.query("update event_sources set enabled = false where id = %s", source.id)
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        rows = await matching.decided(delivery_id, items=20)
    assert [row["item"] for row in rows] == list(range(20))
    outcomes = [row["outcome"] for row in rows]
    assert (outcomes.count("matched"), outcomes.count("source_disabled")) == (decided, 20 - decided)
    assert len(await matching.backlog(source.instance_id)) == decided


async def test_a_database_that_is_killed_is_waited_for(
    matching: Matching, start_service: StartService, room_parts: Parts
) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        service = await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        server.kill()
        try:
            sent = [await matching.send(source, b'{"what":"push","n":%d}' % number) for number in range(20)]
            assert await asyncio.to_thread(wait_until, lambda: not service.answers(), timeout=30)
            assert service.lives()
        finally:
            await asyncio.to_thread(server.start)
        for delivery_id in sent:
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] == "matched"
    assert len(await matching.backlog(source.instance_id)) == 20
