"""The lease on a real PostgreSQL: who gets a room, and what a worker that lost it can still write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from room_common.errors import LeaseLost
from room_common.identity import new_id
from room_common.postgres import cycles, events, inbox, leases, outbox, resuming, rooms
from room_common.postgres.database import Database
from room_common.postgres.leases import Backoff, Lease, Leased, lease_transaction
from room_testing.running import Running, SeededRoom

pytestmark = pytest.mark.integration
BACKOFF = Backoff(30.0, 1800.0, 5)


async def claim(database: Database, owner: str = "worker", seconds: float = 30.0) -> Lease | None:
    async with database.transaction() as conn:
        return await leases.claim(conn, owner, seconds)


async def claimed(database: Database, world: Running, room: SeededRoom, owner: str = "worker") -> Lease:
    await world.wake(room)
    lease = await claim(database, owner)
    assert lease is not None and lease.instance_id == room.instance_id
    return lease


async def test_many_claims_at_once_get_distinct_rooms(database: Database, rooms_only: Running) -> None:
    seeded = [await rooms_only.room() for _ in range(6)]
    for room in seeded:
        await rooms_only.wake(room)
    got = await asyncio.gather(*(claim(database, f"worker-{number}") for number in range(10)))
    found = [lease.instance_id for lease in got if lease is not None]
    assert sorted(found) == sorted(room.instance_id for room in seeded)
    assert await claim(database) is None


async def test_only_what_may_run_is_claimed_the_longest_awake_first(database: Database, rooms_only: Running) -> None:
    names = ("second", "first", "later", "off", "paused", "deleted", "parked", "backing off", "asleep")
    made = {name: await rooms_only.room() for name in names}

    async def change(name: str, column: str) -> None:
        await rooms_only.query(f"update instance_room set {column} where instance_id = %s", made[name].instance_id)

    for name in names[:-1]:
        await change(name, "wake_at = now() - interval '1 minute'")
    await change("first", "wake_at = now() - interval '2 minutes'")
    await change("later", "wake_at = now() + interval '1 minute'")
    await change("off", "enabled = false")
    await change("parked", "parked_reason = 'deadline'")
    await change("backing off", "next_try_at = now() + interval '1 minute'")
    await rooms_only.query("update instances set status = 'paused' where id = %s", made["paused"].instance_id)
    await rooms_only.query("update instances set deleted_at = now() where id = %s", made["deleted"].instance_id)
    order = [await claim(database) for _ in range(3)]
    assert [lease and lease.instance_id for lease in order] == [
        made["first"].instance_id,
        made["second"].instance_id,
        None,
    ]


async def test_each_claim_and_release_raises_the_epoch(database: Database, rooms_only: Running) -> None:
    room = await rooms_only.room()
    lease = await claimed(database, rooms_only, room)
    async with lease_transaction(database, lease) as leased:
        await leases.release(leased)
    again = await claimed(database, rooms_only, room)
    assert again.epoch == lease.epoch + 2


Write = Callable[[Leased, UUID, UUID], Awaitable[object]]
SOON = datetime.now(UTC) + timedelta(hours=1)
WRITES: dict[str, Write] = {
    "leases.release": lambda leased, cycle, event: leases.release(leased),
    "leases.succeed": lambda leased, cycle, event: leases.succeed(leased),
    "leases.fail": lambda leased, cycle, event: leases.fail(leased, "deadline", BACKOFF),
    "leases.sleep_until": lambda leased, cycle, event: leases.sleep_until(leased, SOON),
    "events.take": lambda leased, cycle, event: events.take(leased, cycle, [event]),
    "events.complete": lambda leased, cycle, event: events.complete(leased, cycle, [event], "done"),
    "events.defer": lambda leased, cycle, event: events.defer(leased, cycle, event, 5, "later", 10),
    "events.put_back": lambda leased, cycle, event: events.put_back(leased, cycle),
    "events.retry": lambda leased, cycle, event: events.retry(leased, cycle, BACKOFF, "note"),
    "events.cool": lambda leased, cycle, event: events.cool(leased, cycle),
    "inbox.take": lambda leased, cycle, event: inbox.take(leased, cycle, [event]),
    "inbox.mark_read": lambda leased, cycle, event: inbox.mark_read(leased, cycle),
    "inbox.put_back": lambda leased, cycle, event: inbox.put_back(leased, cycle),
    "inbox.retry": lambda leased, cycle, event: inbox.retry(leased, cycle, 5),
    "outbox.add": lambda leased, cycle, event: outbox.add(leased, cycle, "hello"),
    "cycles.begin": lambda leased, cycle, event: cycles.begin(
        leased, new_id(), "pending", events_taken=1, replies_taken=0, traceparent=None
    ),
    "cycles.append": lambda leased, cycle, event: cycles.append(leased, cycle, 9, {"role": "user", "content": "x"}),
    "cycles.count_step": lambda leased, cycle, event: cycles.count_step(leased, cycle, 1, 1),
    "cycles.end": lambda leased, cycle, event: cycles.end(leased, cycle, "succeeded"),
    "cycles.abandon": lambda leased, cycle, event: cycles.abandon(leased, cycle, "released", None),
    "resuming.resume": lambda leased, cycle, event: resuming.resume(leased),
    "resuming.pause": lambda leased, cycle, event: resuming.pause(leased, cycle, 0.0),
    "resuming.begin_calls": lambda leased, cycle, event: resuming.begin_calls(leased, cycle, ["call_0"]),
}
READS = {
    *("events.offerable", "events.load", "events.unmarked", "inbox.unread"),
    *("cycles.brief", "cycles.written", "cycles.earlier_actions"),
}
TABLES = ("instance_room", "event_backlog", "event_definitions", "room_inbox", "room_cycles", "cycle_messages",
          "outbound_messages", "room_activity_log")  # fmt: skip


async def contents(world: Running) -> list[object]:
    return [await world.query(f"select * from {table} order by 1, 2") for table in TABLES]


def test_every_function_that_takes_a_lease_is_in_the_table() -> None:
    found = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (leases, events, inbox, outbox, cycles, resuming)
        for name, function in vars(module).items()
        if getattr(function, "__module__", None) == module.__name__
        and getattr(function, "__annotations__", {}).get("leased") == "Leased"
    }
    assert found == set(WRITES) | READS


async def running_cycle(database: Database, world: Running, lease: Lease, room: SeededRoom) -> tuple[UUID, UUID]:
    """A cycle with one event and one reply; returns its id and the event's."""
    event, reply, cycle = await world.event(room), await world.reply(room), new_id()
    async with lease_transaction(database, lease) as leased:
        await cycles.begin(leased, cycle, "pending", events_taken=1, replies_taken=1, traceparent=None)
        await events.take(leased, cycle, [event])
        await inbox.take(leased, cycle, [reply])
    return cycle, event


@pytest.mark.parametrize("how", ["released", "swept", "taken by another", "deleted instance"])
async def test_a_stale_lease_writes_nothing(database: Database, rooms_only: Running, how: str) -> None:
    room = await rooms_only.room()
    stale = await claimed(database, rooms_only, room)
    cycle, event = await running_cycle(database, rooms_only, stale, room)
    if how == "released":
        async with lease_transaction(database, stale) as leased:
            await leases.release(leased)
    elif how == "deleted instance":
        await rooms_only.query("update instance_room set lease_epoch = lease_epoch + 1")
    else:
        await rooms_only.query("update instance_room set lease_until = now() - interval '1 second'")
        async with database.transaction() as conn:
            await resuming.sweep_one(conn, BACKOFF, 3)
        if how == "taken by another":
            assert await claim(database, stale.owner) is not None
    before = await contents(rooms_only)
    for name, write in WRITES.items():
        with pytest.raises(LeaseLost):
            async with lease_transaction(database, stale) as leased:
                await write(leased, cycle, event)
        assert await contents(rooms_only) == before, name


async def test_renewal_extends_ours_reports_what_is_lost_and_waits_for_no_row(
    database: Database, rooms_only: Running, database_dsn: str
) -> None:
    kept = await claimed(database, rooms_only, await rooms_only.room())
    locked = await claimed(database, rooms_only, await rooms_only.room())
    lost = await claimed(database, rooms_only, await rooms_only.room())
    async with lease_transaction(database, lost) as leased:
        await leases.release(leased)
    with psycopg.connect(database_dsn, autocommit=True, row_factory=dict_row) as conn:
        async with lease_transaction(database, locked):
            renewal = await asyncio.to_thread(leases.renew, conn, "worker", [kept, locked, lost], 300.0)
    assert renewal.renewed == {kept}
    assert renewal.busy == {locked}
    (row,) = await rooms_only.query(
        "select lease_until > now() + interval '200 seconds' as longer from instance_room where instance_id = %s",
        kept.instance_id,
    )
    assert row["longer"]


async def test_the_sweep_ends_expired_leases_once_of_disabled_rooms_too(
    database: Database, rooms_only: Running
) -> None:
    on, off, alive = [await rooms_only.room() for _ in range(3)]
    for room in (on, off, alive):
        lease = await claimed(database, rooms_only, room)
        await running_cycle(database, rooms_only, lease, room)
    await rooms_only.query("update instance_room set enabled = false where instance_id = %s", off.instance_id)

    async def expire() -> None:
        await rooms_only.query(
            "update instance_room set lease_until = now() - interval '1 second'"
            " where instance_id <> %s and lease_owner is not null",
            alive.instance_id,
        )

    async def sweep(max_losses: int = 3) -> UUID | None:
        async with database.transaction() as conn:
            swept = await resuming.sweep_one(conn, BACKOFF, max_losses)
            return None if swept is None else swept.instance_id

    await expire()
    found = await asyncio.gather(*(sweep() for _ in range(5)))
    assert {room for room in found if room} == {on.instance_id, off.instance_id}
    assert len([room for room in found if room]) == 2
    (held,) = await rooms_only.events(on)
    assert (held["status"], held["attempts"]) == ("processing", 0)
    (spared,) = await rooms_only.events(off)
    assert (spared["status"], spared["attempts"]) == ("pending", 0)
    (cycle,) = await rooms_only.cycles(off)
    assert (cycle["status"], cycle["error_kind"]) == ("abandoned", "disabled")
    (cycle,) = await rooms_only.cycles(on)
    assert (cycle["status"], cycle["losses"]) == ("running", 1)
    state = await rooms_only.state(on)
    assert state["lease_owner"] is None and state["wake_at"] is not None
    assert (await rooms_only.state(alive))["lease_owner"] == "worker"
    assert await claim(database) is not None
    await expire()
    assert await sweep(max_losses=1) == on.instance_id
    (tried,) = await rooms_only.events(on)
    assert (tried["status"], tried["attempts"]) == ("pending", 1)
    assert tried["next_attempt_at"] > datetime.now(UTC) + timedelta(seconds=20)
    assert [row["status"] for row in await rooms_only.query("select status from room_inbox order by id")] == [
        "unread",
        "unread",
        "taken",
    ]
    (cycle,) = await rooms_only.cycles(on)
    assert (cycle["status"], cycle["error_kind"]) == ("abandoned", "lease_expired")
    assert await rooms_only.activity(on) == ["cycle_started", "cycle_abandoned"]


async def test_waking(database: Database, rooms_only: Running) -> None:
    asleep, gathering, off = [await rooms_only.room() for _ in range(3)]
    await rooms_only.query(
        "update instance_room set wake_at = now() + interval '1 hour' where instance_id = %s", gathering.instance_id
    )
    await rooms_only.query("update instance_room set enabled = false where instance_id = %s", off.instance_id)
    everyone = [asleep.instance_id, gathering.instance_id, off.instance_id, new_id()]
    async with database.transaction() as conn:
        assert await rooms.wake(conn, everyone) == 1
    assert (await rooms_only.state(gathering))["wake_at"] > datetime.now(UTC) + timedelta(minutes=30)
    assert (await rooms_only.state(off))["wake_at"] is None
    async with database.transaction() as conn:
        assert await rooms.wake(conn, [], everyone) == 1
    assert (await rooms_only.state(gathering))["wake_at"] <= datetime.now(UTC) + timedelta(seconds=5)


async def test_a_claim_tells_once_what_woke_the_room(database: Database, rooms_only: Running) -> None:
    room = await rooms_only.room()
    async with database.transaction() as conn:
        await rooms.wake(conn, [room.instance_id], woken_by="00-tick")
    first = await claim(database)
    assert first is not None and first.woken_by == "00-tick"
    async with lease_transaction(database, first) as leased:
        await leases.release(leased)
    assert (await claimed(database, rooms_only, room)).woken_by is None


async def test_fencing_all_takes_every_room_and_its_cycle_is_resumed(database: Database, rooms_only: Running) -> None:
    held, free = await rooms_only.room(), await rooms_only.room()
    stale = await claimed(database, rooms_only, held)
    await running_cycle(database, rooms_only, stale, held)
    async with database.transaction() as conn:
        assert await leases.fence_all(conn) == 1
    with pytest.raises(LeaseLost):
        async with lease_transaction(database, stale):
            pass
    lease = await claim(database)
    assert lease is not None and lease.epoch > stale.epoch + 100
    async with lease_transaction(database, lease) as leased:
        assert await resuming.resume(leased) is not None
    assert (await rooms_only.state(free))["wake_at"] is None
