"""room-runner as a real process: ticks in, outbound records out."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from room_testing.matching import eventually
from room_testing.plugin import StartService
from room_testing.running import Running, ScriptedSupervisor, SeededRoom, calls, events_in, says

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def succeeded(world: Running, room: SeededRoom, count: int = 1) -> None:
    async def done() -> bool:
        return [cycle["status"] for cycle in await world.cycles(room)].count("succeeded") >= count

    await eventually(done, "the end of the cycle")


async def published(world: Running, room: SeededRoom, count: int = 1) -> None:
    async def done() -> bool:
        return [message["status"] for message in await world.messages(room)].count("published") >= count

    await eventually(done, "the published message")


async def metrics_of(port: int) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}/metrics")).text


async def test_a_tick_becomes_a_cycle_and_its_message_a_record(running: Running, start_service: StartService) -> None:
    room, disabled = await running.room(), await running.room(enabled=False)
    event = await running.event(room)
    await running.event(disabled)
    async with ScriptedSupervisor() as llm:
        service = start_service("room_runner", running.environment(llm.url))
        await running.send_tick_bytes(b"no tick")
        await running.tick(disabled)
        await running.tick(room)
        await running.tick(room)
        await succeeded(running, room)
        await published(running, room)
        (message,) = await running.messages(room)
        records = [record for record in await running.published() if record.instance_id == room.instance_id]
        assert {record.id for record in records} == {message["id"]}
        assert records[0].text == "Here is what happened."
        assert [row["id"] for row in await running.events(room) if row["status"] == "completed"] == [event]
        assert len(await running.cycles(room)) == 1
        assert await running.cycles(disabled) == []
        text = await metrics_of(service.operations_port)
        assert 'room_cycles_total{status="succeeded"} 1.0' in text
        assert 'room_cycle_slots{state="free"} 8.0' in text
        assert 'room_event_age_seconds_count{stage="taken"} 1.0' in text
        (state,) = await running.query("select detail from service_state where service = 'room-runner'")
        assert state["detail"]["slots"] == 8


async def test_a_reply_during_a_cycle_starts_the_next_one_when_it_ends(
    running: Running, start_service: StartService
) -> None:
    room = await running.room()
    await running.event(room, b'{"name": "held"}')
    async with ScriptedSupervisor() as llm:
        release = llm.hold("held")
        start_service("room_runner", running.environment(llm.url))
        await running.tick(room)
        await llm.hangs("held")
        await running.reply(room, "And now?")
        await running.tick(room, "reply")
        release.set()
        await succeeded(running, room, 2)
        first, second = await running.cycles(room)
        assert (first["replies"], second["replies"], second["events"]) == (0, 1, 0)
        assert first["finished_at"] <= second["started_at"]


async def test_a_room_that_sleeps_for_a_moment_is_claimed_when_it_wakes_up(
    running: Running, start_service: StartService
) -> None:
    """As after a reply: its tick comes while further ones are still waited for. The next look alone is far away."""
    room = await running.room()
    await running.reply(room)
    async with ScriptedSupervisor() as llm:
        start_service("room_runner", running.environment(llm.url, ROOM_RUNNER__CLAIM_SECONDS="60"))
        await running.query("update instance_room set wake_at = now() + interval '2 seconds'")
        await running.tick(room, "reply")

        async def done() -> bool:
            return [cycle["status"] for cycle in await running.cycles(room)] == ["succeeded"]

        await eventually(done, "the cycle", 30.0)


async def test_a_hanging_model_call_delays_no_other_room_of_the_partition(
    running: Running, start_service: StartService
) -> None:
    slow = await running.room()
    others = [await running.room() for _ in range(5)]
    await running.event(slow, b'{"name": "held"}')
    for room in others:
        await running.event(room)
    async with ScriptedSupervisor() as llm:
        release = llm.hold("held")
        start_service("room_runner", running.environment(llm.url, ROOM_RUNNER__SLOTS="2"))
        await running.tick(slow, partition=0)
        await llm.hangs("held")
        for room in others:
            await running.tick(room, partition=0)
        for room in others:
            await succeeded(running, room)
        assert [cycle["status"] for cycle in await running.cycles(slow)] == ["running"]
        release.set()
        await succeeded(running, slow)


async def test_provider_trouble_stops_claims_and_ends_without_a_trace(
    running: Running, start_service: StartService
) -> None:
    rooms = [await running.room() for _ in range(3)]
    for room in rooms:
        await running.event(room)
    async with ScriptedSupervisor(status=503) as llm:
        environment = running.environment(llm.url, ROOM_RUNNER__SLOTS="1", ROOM_RUNNER__PROVIDER_WAIT_SECONDS="0.5")
        service = start_service("room_runner", environment)
        for room in rooms:
            await running.tick(room)

        async def probed() -> bool:
            return llm.probes >= 3

        await eventually(probed, "probes")
        assert "room_claims_held 1.0" in await metrics_of(service.operations_port)
        assert len(llm.requests) <= 2
        llm.status = None
        for room in rooms:
            await succeeded(running, room)
            assert [event["attempts"] for event in await running.events(room)] == [0]
            assert (await running.state(room))["fails"] == 0
    assert "model provider answers again" in service.output()


async def test_a_stop_waits_for_the_end_of_a_step_and_another_worker_goes_on(
    running: Running, start_service: StartService
) -> None:
    ends, hangs = await running.room(), await running.room()
    await running.event(ends, b'{"name": "short"}')
    await running.event(hangs, b'{"name": "endless"}')
    async with ScriptedSupervisor() as llm:
        short = llm.hold("short")
        endless = llm.hold("endless")
        environment = running.environment(llm.url, ROOM_RUNNER__DRAIN_SECONDS="3")
        service = start_service("room_runner", environment)
        await running.tick(ends)
        await running.tick(hangs)
        await llm.hangs("short")
        await llm.hangs("endless")
        stopping = asyncio.create_task(asyncio.to_thread(service.stop))
        await asyncio.sleep(0.5)  # until the signal has arrived
        short.set()
        await stopping
        for room, steps in ((ends, 1), (hangs, 0)):
            (cycle,) = await running.cycles(room)
            assert (cycle["status"], cycle["steps"], cycle["losses"]) == ("running", steps, 0)
            (event,) = await running.events(room)
            assert (event["status"], event["attempts"]) == ("processing", 0)
            state = await running.state(room)
            assert state["lease_owner"] is None and state["wake_at"] is not None
        endless.set()
        start_service("room_runner", environment)
        for room in (ends, hangs):
            await succeeded(running, room)
            (cycle,) = await running.cycles(room)
            assert (cycle["steps"], cycle["resumes"]) == (3, 1)
            assert len(await running.messages(room)) == 1
        assert len(llm.requests) == 7  # three steps each, and one call that was cut off


async def test_a_lost_record_is_made_up_for(running: Running, start_service: StartService) -> None:
    room = await running.room()
    await running.event(room)
    async with ScriptedSupervisor() as llm:
        start_service("room_runner", running.environment(llm.url, ROOM_RUNNER__REPUBLISH_SECONDS="1"))
        await running.tick(room)
        await published(running, room)

        async def twice() -> bool:
            return len([record for record in await running.published() if record.instance_id == room.instance_id]) >= 2

        await eventually(twice, "the second record")
        await running.query("update outbound_messages set status = 'sent', sent_at = now()")


async def test_parallel_calls_are_carried_out_in_order(running: Running, start_service: StartService) -> None:
    room = await running.room()
    await running.event(room)

    def script(messages: object) -> dict[str, object]:
        assert isinstance(messages, list)
        if messages[-1]["role"] == "tool":
            return says("NO_MESSAGE")
        sends = [("send_message_to_human", {"message": str(number)}) for number in range(3)]
        return calls(*sends, ("mark_events_completed", {"event_ids": events_in(messages)}))

    async with ScriptedSupervisor(script) as llm:
        start_service("room_runner", running.environment(llm.url))
        await running.tick(room)
        await succeeded(running, room)
        assert [message["text"] for message in await running.messages(room)] == ["0", "1", "2"]
