"""Schedulers killed while they emit and while they take replies: no room is forgotten, no reply is lost or doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from room_testing.matching import eventually
from room_testing.parts import Parts
from room_testing.plugin import StartService
from room_testing.scheduling import Scheduling

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]


@pytest.mark.parametrize("point", ["scheduler.after_win", "scheduler.mid_emission"])
async def test_killed_while_emitting(world: Scheduling, start_service: StartService, point: str) -> None:
    rooms = [await world.room() for _ in range(6)]
    for room in rooms:
        await world.event(room)
    await world.mark()
    environment = world.scheduler_environment(ROOM_SCHEDULER__PAGE="2", ROOM_SCHEDULER__SPREAD="0")
    victim = start_service("room_scheduler", environment, crash=point, wait=False)
    assert await asyncio.to_thread(victim.wait_exit) == -9
    assert len(await world.ticks()) == (2 if point == "scheduler.mid_emission" else 0)
    (lost,) = await world.query("select seq from scheduler_clock")
    start_service("room_scheduler", environment)

    async def everybody() -> bool:
        return {tick.instance_id for tick in await world.ticks()} == {room.instance_id for room in rooms}

    await eventually(everybody, "a tick for every room")
    ticks = await world.ticks()
    assert sum(tick.seq == lost["seq"] for tick in ticks) in (0, 2), "the number that was won is not emitted again"
    assert max(Counter((tick.instance_id, tick.seq) for tick in ticks).values()) == 1


async def test_killed_after_a_reply_was_recorded(world: Scheduling, start_service: StartService) -> None:
    """Between the commit of the row and its tick: the row wakes the room, and the record comes again without effect."""
    room = await world.room()
    channel = await world.channel(room)
    environment = world.scheduler_environment(ROOM_SCHEDULER__TICK_SECONDS="3600")
    victim = start_service("room_scheduler", environment, crash="scheduler.after_reply:2", wait=False)
    await world.send(*(world.reply_record(channel, {"sender": "me", "text": f"{number}"}) for number in range(4)))
    assert await asyncio.to_thread(victim.wait_exit) == -9
    assert [row["text"] for row in await world.inbox(room)] == ["0", "1"]
    assert (await world.state(room))["wake_at"] is not None
    start_service("room_scheduler", environment)
    rows = await world.arrived(room, 4)
    assert [(row["text"], row["status"]) for row in rows] == [(f"{number}", "unread") for number in range(4)]


async def test_a_postgresql_that_comes_back_brings_no_storm_of_missed_ticks(
    world: Scheduling, start_service: StartService, room_parts: Parts
) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    room = await world.room()
    channel = await world.channel(room)
    await world.event(room)
    await world.mark()
    for _ in range(2):
        start_service("room_scheduler", world.scheduler_environment())

    async def ticking(more: int) -> bool:
        return len(await world.ticks(room)) >= more

    await eventually(lambda: ticking(2), "ticks")
    await asyncio.to_thread(server.restart)
    await world.send(world.reply_record(channel, {"sender": "me", "text": "still there?"}))
    server.pause()
    await asyncio.sleep(5.0)
    server.resume()
    before = len(await world.ticks(room))
    await eventually(lambda: ticking(before + 3), "ticks after it came back")
    pending = [tick for tick in await world.ticks(room) if tick.reason == "pending"]
    assert max(Counter(tick.seq for tick in pending).values()) == 1
    assert all(later.seq > earlier.seq for earlier, later in pairwise(pending))
    assert all(abs(tick.issued_at.timestamp() - tick.seq) < 1.5 for tick in pending), "each in its own second"
    rows = await world.arrived(room)
    assert [row["text"] for row in rows] == ["still there?"]
