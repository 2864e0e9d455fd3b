"""Workers killed, frozen or cut off from PostgreSQL: no event is lost, no effect doubled, nothing written late."""

from __future__ import annotations

import asyncio

import pytest

from room_testing.matching import eventually
from room_testing.parts import Parts
from room_testing.plugin import StartService
from room_testing.running import Running, ScriptedSupervisor, SeededRoom

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

TABLES = ("instance_room", "event_backlog", "event_definitions", "room_inbox", "room_cycles", "cycle_messages",
          "outbound_messages", "room_activity_log", "token_usage")  # fmt: skip


async def contents(world: Running) -> list[object]:
    return [await world.query(f"select * from {table} order by 1, 2") for table in TABLES]


async def settled(world: Running, room: SeededRoom) -> None:
    """Return once every event is completed, every message published, and nobody holds the room. Ticks meanwhile."""

    async def done() -> bool:
        await world.query("update instance_room set wake_at = now() where wake_at is null and lease_owner is null")
        events, messages, state = await world.events(room), await world.messages(room), await world.state(room)
        return (
            all(event["status"] == "completed" for event in events)
            and all(message["status"] == "published" for message in messages)
            and state["lease_owner"] is None
        )

    async def at_rest() -> bool:
        state = await world.state(room)
        return state["wake_at"] is None and state["lease_owner"] is None

    await eventually(done, "the end of all work", 60.0)
    await eventually(at_rest, "rest")


@pytest.mark.parametrize(
    ("point", "paid_twice", "resumes"),  # None: the relay is killed beside whatever the cycle does just then
    [
        ("runner.after_claim", 0, 0),
        ("runner.before_open_commit", 0, 0),
        ("runner.after_open_commit", 0, 1),
        ("runner.after_llm", 1, 1),
        ("runner.before_step_commit:2", 1, 1),
        ("runner.after_step_commit:2", 0, 1),
        ("runner.before_tool_commit", 0, 1),
        ("runner.after_tool_commit", 0, 1),
        ("runner.after_tool:2", 0, 1),
        ("runner.before_finish_commit", 0, 1),
        ("runner.after_finish_commit", 0, 0),
        ("relay.after_publish", None, None),
    ],
)
async def test_killed_at(
    running: Running, start_service: StartService, point: str, paid_twice: int | None, resumes: int | None
) -> None:
    room = await running.room()
    await running.event(room)
    async with ScriptedSupervisor() as llm:
        environment = running.environment(llm.url)
        victim = start_service("room_runner", environment, crash=point)
        await running.tick(room)
        assert await asyncio.to_thread(victim.wait_exit) == -9
        start_service("room_runner", environment)
        await settled(running, room)
        (message,) = await running.messages(room)
        assert message["text"] == "Here is what happened."
        (cycle,) = await running.cycles(room)
        assert (cycle["status"], cycle["steps"]) == ("succeeded", 3)
        # A call that was under way is asked again; finished ones never are.
        assert len(llm.requests) - 3 in ((0, 1) if paid_twice is None else (paid_twice,))
        if resumes is not None:
            assert cycle["resumes"] == resumes
        assert [event["attempts"] for event in await running.events(room)] == [0]
        records = [record.id for record in await running.published() if record.instance_id == room.instance_id]
        assert set(records) == {message["id"]}


async def test_a_worker_frozen_past_its_lease_writes_nothing_afterwards(
    running: Running, start_service: StartService
) -> None:
    room = await running.room()
    await running.event(room, b'{"name": "held"}')
    async with ScriptedSupervisor() as llm:
        environment = running.environment(llm.url)
        frozen = start_service("room_runner", environment)
        answer = llm.hold("held")
        await running.tick(room)
        await llm.hangs("held")
        frozen.pause()
        answer.set()  # the answer lies in the frozen worker's socket: it is the first thing it sees when it wakes up
        start_service("room_runner", environment)
        await settled(running, room)
        found = await running.cycles(room)
        assert [(cycle["status"], cycle["resumes"]) for cycle in found] == [("succeeded", 1)]
        before, asked = await contents(running), len(llm.requests)
        frozen.resume()

        async def noticed() -> bool:
            return "another worker has the room" in frozen.output() or "nothing to give back" in frozen.output()

        await eventually(noticed, "the frozen worker's notice")
        await asyncio.sleep(1.0)  # whatever it still wanted to write, it has tried
        assert await contents(running) == before
        assert len(llm.requests) == asked
        assert frozen.exit_code is None


async def test_a_restart_of_postgresql_in_the_middle_of_a_cycle_costs_nothing(
    running: Running, start_service: StartService, room_parts: Parts
) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    room = await running.room()
    await running.event(room, b'{"name": "held"}')
    async with ScriptedSupervisor() as llm:
        start_service("room_runner", running.environment(llm.url))
        answer = llm.hold("held")
        await running.tick(room)
        await llm.hangs("held")
        await asyncio.to_thread(server.restart)
        answer.set()
        await settled(running, room)
        assert [event["attempts"] for event in await running.events(room)] == [0]
        assert len(await running.messages(room)) == 1
        assert [cycle["status"] for cycle in await running.cycles(room)] == ["succeeded"]


async def test_postgresql_frozen_past_the_lease_spends_no_attempt(
    running: Running, start_service: StartService, room_parts: Parts
) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    room = await running.room()
    await running.event(room, b'{"name": "held"}')
    async with ScriptedSupervisor() as llm:
        service = start_service("room_runner", running.environment(llm.url))
        answer = llm.hold("held")
        await running.tick(room)
        await llm.hangs("held")
        server.pause()
        try:

            async def fenced() -> bool:
                return "lease lost" in service.output()

            await eventually(fenced, "the self-fence")
            await asyncio.sleep(3.0)  # until the lease has run out in the row, too
        finally:
            server.resume()
        answer.set()
        await settled(running, room)
        assert [event["attempts"] for event in await running.events(room)] == [0]
        (cycle,) = await running.cycles(room)
        assert (cycle["status"], (await running.state(room))["fails"]) == ("succeeded", 0)
        assert cycle["resumes"] >= 1
