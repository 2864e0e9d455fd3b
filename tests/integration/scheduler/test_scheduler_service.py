"""The scheduler as a real process: the clock and replies in, ticks out."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from room_testing.matching import eventually
from room_testing.plugin import StartService
from room_testing.scheduling import Scheduling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_three_schedulers_emit_each_tick_once(world: Scheduling, start_service: StartService) -> None:
    due, idle = [await world.room() for _ in range(7)], await world.room()
    for room in due:
        await world.event(room)
    await world.mark()
    environment = world.scheduler_environment(ROOM_SCHEDULER__PAGE="3", ROOM_SCHEDULER__SPREAD="0")
    for _ in range(3):
        start_service("room_scheduler", environment, wait=False)

    async def five() -> bool:
        return len({tick.seq for tick in await world.ticks(due[0])}) >= 5

    await eventually(five, "five ticks")
    await world.query("update event_backlog set status = 'completed'")
    ticks = await world.ticks()
    assert {tick.instance_id for tick in ticks} == {room.instance_id for room in due}
    assert await world.ticks(idle) == []
    doubles = [key for key, count in Counter((tick.instance_id, tick.seq) for tick in ticks).items() if count > 1]
    assert doubles == []
    assert {tick.reason for tick in ticks} == {"pending"}
    for room in due:
        numbers = [tick.seq for tick in await world.ticks(room)]
        assert numbers == sorted(numbers)


async def test_a_reply_ticks_at_once(world: Scheduling, start_service: StartService) -> None:
    room = await world.room()
    channel = await world.channel(room)
    await world.mark()
    service = start_service("room_scheduler", world.scheduler_environment(ROOM_SCHEDULER__TICK_SECONDS="3600"))
    good = world.reply_record(channel, {"sender": "me", "text": "What is new?"})
    await world.send(good, world.reply_record(channel, b"no json"), good)
    (row,) = await world.arrived(room)
    assert row["status"] == "unread"

    async def ticked() -> bool:
        return [tick.reason for tick in await world.ticks(room)] == ["reply"]

    await eventually(ticked, "the tick")

    async def dead() -> list[bytes]:
        return [headers["error"] for headers in await world.dead_replies(channel)]

    assert await eventually(dead, "the dead letter") == [b"undecodable"]
    assert len(await world.inbox(room)) == 1
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{service.operations_port}/metrics")).text
    assert 'room_replies_total{channel="local",fate="unread"} 1.0' in text
    assert "What is new" not in service.output() and channel.token not in service.output()


async def test_a_stop_ends_it_soon(world: Scheduling, start_service: StartService) -> None:
    service = start_service("room_scheduler", world.scheduler_environment(ROOM_SCHEDULER__TICK_SECONDS="3600"))
    await asyncio.to_thread(service.stop)
    assert '"stopped"' in service.output() or "stop" in service.output()
    assert "did not stop in time" not in service.output()
