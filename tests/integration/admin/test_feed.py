"""The live feed on a real database."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any
from uuid import UUID

import orjson
import pytest
from fastapi import Request

from room_admin import feed as feeds
from room_admin.access import still_valid
from room_admin.feed import Stream
from room_admin.problems import Problem
from room_common.identity import new_id
from room_testing.administering import TOKENS, Administering, room_document

pytestmark = pytest.mark.integration


async def always() -> bool:
    return True


class Events:
    """The events of a stream, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.last_id: str | None = None

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(20):
            async for block in self.stream:
                fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n") if not line.startswith(b":"))
                if b"id" in fields:
                    self.last_id = fields[b"id"].decode()
                if b"data" in fields:
                    return fields[b"event"].decode(), orjson.loads(fields[b"data"])
        raise AssertionError("the stream has ended")

    async def until(self, kind: str, **wanted: object) -> Any:
        while True:
            event, data = await self.next()
            if event == kind and all(data.get(name) == value for name, value in wanted.items()):
                return data


async def listen(admin: Administering, **options: Any) -> Events:
    given = {"room": None, "last_event_id": None, "holds": always} | options
    return Events(await admin.feed.listen("a", **given))


async def act(admin: Administering, slug: str, content: str, seconds_ago: float = 0) -> UUID:
    row_id = new_id()
    await admin.query(
        "insert into room_activity_log (id, instance_id, log_date, kind, content, occurred_at)"
        " select %s, id, current_date, 'error', %s, now() - make_interval(secs => %s) from instances where slug = %s",
        row_id,
        content,
        seconds_ago,
        slug,
    )
    return row_id


async def test_states_come_first_then_what_changes(own_admin: Administering) -> None:
    await own_admin.apply(room_document("desk"))
    await own_admin.apply(room_document("other"))
    events = await listen(own_admin, room="desk")
    async with aclosing(events.stream):
        assert (await events.next())[1]["slug"] == "desk"
        assert await events.next() == ("ready", {})
        await own_admin.call("PATCH", "/instances/other", json={"enabled": False})
        await own_admin.call("PATCH", "/instances/desk", json={"enabled": False})
        assert (await events.until("room"))["slug"] == "desk"
        await act(own_admin, "other", "not for here")
        row = await act(own_admin, "desk", "x\n\ndata: y")
        told = await events.until("activity")
        assert (told["id"], told["content"], told["room"]) == (str(row), "x\n\ndata: y", "desk")


async def test_a_client_that_comes_back_gets_what_it_missed(own_admin: Administering) -> None:
    await own_admin.apply(room_document("desk"))
    events = await listen(own_admin)
    async with aclosing(events.stream):
        await events.until("ready")
        await act(own_admin, "desk", "first")
        await events.until("activity", content="first")
    missed = await act(own_admin, "desk", "missed")
    again = await listen(own_admin, last_event_id=events.last_id)
    async with aclosing(again.stream):
        assert (await again.until("activity", content="missed"))["id"] == str(missed)
        await again.until("ready")


async def test_what_is_committed_late_is_told_and_told_once(own_admin: Administering) -> None:
    await own_admin.apply(room_document("desk"))
    events = await listen(own_admin)
    async with aclosing(events.stream):
        await events.until("ready")
        await act(own_admin, "desk", "late", seconds_ago=5)
        assert (await events.until("activity"))["content"] == "late"
        await act(own_admin, "desk", "then")
        assert (await events.until("activity"))["content"] == "then"


async def test_where_there_was_too_much_a_gap_is_told(
    own_admin: Administering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "ROWS", 1)
    await own_admin.apply(room_document("desk"))
    events = await listen(own_admin)
    async with aclosing(events.stream):
        await events.until("ready")
        place = events.last_id
        for number in range(2):
            await act(own_admin, "desk", str(number))
        await events.until("gap", of="activity")
    again = await listen(own_admin, last_event_id=place)
    async with aclosing(again.stream):
        await again.until("gap", of="activity")


async def test_cycles_are_told_while_they_run_and_once_more_at_their_end(own_admin: Administering) -> None:
    room = await own_admin.listed("desk")
    await own_admin.query("update room_cycles set status = 'running', finished_at = null")
    events = await listen(own_admin)
    async with aclosing(events.stream):
        assert (await events.until("cycle"))["status"] == "running"
        await own_admin.query("update room_cycles set status = 'failed', error_kind = 'llm', finished_at = now()")
        assert (await events.until("cycle"))["status"] == "failed"
        await own_admin.query("update instances set deleted_at = now() where slug = %s", room.slug)
        assert await events.until("room", slug="desk", gone=True)


async def test_one_cycle_is_followed_to_its_end(own_admin: Administering) -> None:
    room = await own_admin.listed("desk")
    await own_admin.query("update room_cycles set status = 'running', finished_at = null")
    events = Events(await own_admin.feed.follow("a", room.cycle_id, last_event_id=None, holds=always))
    async with aclosing(events.stream):
        assert (await events.next())[0] == "transcript"
        assert (await events.next())[0] == "message"
        assert (await events.next())[0] == "cycle"
        await own_admin.query(
            "insert into cycle_messages (cycle_id, seq, role, content) values (%s, 2, 'assistant', '{}')", room.cycle_id
        )
        assert (await events.until("transcript"))["seq"] == 2
        await own_admin.query("update room_cycles set status = 'succeeded', finished_at = now()")
        assert (await events.next())[1]["status"] == "succeeded"
        assert await events.next() == ("end", {})
    later = Events(await own_admin.feed.follow("a", room.cycle_id, last_event_id="1", holds=always))
    assert (await later.next())[1]["seq"] == 2
    await later.stream.aclose()


async def test_a_slow_client_is_cut_off_and_the_others_are_not(
    own_admin: Administering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "QUEUE", 2)
    await own_admin.apply(room_document("desk"))
    slow, quick = await listen(own_admin), await listen(own_admin)
    async with aclosing(slow.stream), aclosing(quick.stream):
        await slow.until("ready")
        await quick.until("ready")
        for number in range(4):
            await act(own_admin, "desk", str(number))
            await quick.until("activity", content=str(number))
        assert (await slow.until("cut"))["reason"]
        with pytest.raises(AssertionError, match="has ended"):
            await slow.next()


async def test_a_stream_ends_with_its_token(own_admin: Administering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT_SECONDS", 0)

    async def never() -> bool:
        return False

    events = await listen(own_admin, holds=never)
    await events.until("ready")
    with pytest.raises(AssertionError, match="has ended"):
        await events.next()


@pytest.mark.parametrize("limit", ["STREAMS_OF_ONE", "STREAMS"])
async def test_streams_are_counted(own_admin: Administering, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(feeds, limit, 1)
    events = await listen(own_admin)
    await events.until("ready")
    with pytest.raises(Problem) as refused:
        await listen(own_admin)
    assert (refused.value.status, refused.value.retry_after) == (429, 30)
    await events.stream.aclose()
    await (await listen(own_admin)).stream.aclose()


@pytest.mark.parametrize("place", ["x", "W10", "9" * 10, "-1"])
async def test_an_id_that_no_event_had_is_refused(own_admin: Administering, place: str) -> None:
    room = await own_admin.listed("desk")
    for path in ("/feed", f"/cycles/{room.cycle_id}/feed"):
        answer = await own_admin.call("GET", path, headers={"Last-Event-ID": place})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


async def test_a_token_that_is_revoked_holds_no_more(own_admin: Administering) -> None:
    headers = [(b"authorization", b"Bearer " + TOKENS["viewer"].encode())]
    holds = still_valid(Request({"type": "http", "headers": headers}), own_admin.database)
    assert await holds()
    await own_admin.query("update api_tokens set revoked_at = now() where role = 'viewer'")
    assert not await holds()


async def test_over_http_a_stream_has_its_headers_and_ends_with_the_feed(
    own_admin: Administering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "STREAMS", 1)
    await own_admin.apply(room_document("desk"))

    async def stop() -> None:
        await asyncio.sleep(0.2)
        own_admin.feed.stopping.set()

    stopping = asyncio.create_task(stop())
    answer = await own_admin.call("GET", "/feed", "viewer")
    await stopping
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert b"event: ready\n" in answer.content
    assert (await own_admin.call("GET", "/feed", "viewer")).status_code == 200  # its place is free again
