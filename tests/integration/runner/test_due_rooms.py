"""Which rooms want a tick, and that finding them costs by those with work."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from room_common.postgres import rooms
from room_common.postgres.database import Database
from room_testing.running import Running, SeededRoom

pytestmark = pytest.mark.integration


async def page(database: Database, after: UUID | None = None, limit: int = 100) -> list[UUID]:
    async with database.transaction() as conn:
        return await rooms.due_page(conn, after, limit)


async def test_a_room_is_due_with_work_and_nothing_against_it(database: Database, rooms_only: Running) -> None:
    made: dict[str, SeededRoom] = {}
    for name in (
        *("event", "reply", "both", "idle", "off", "paused", "deleted", "leased", "parked", "backing off"),
        *("deferred", "cooling", "failed event", "cooling and deferred"),
    ):
        made[name] = await rooms_only.room()
        if name not in ("reply", "idle"):
            await rooms_only.event(made[name])
        if name in ("reply", "both"):
            await rooms_only.reply(made[name])

    async def change(name: str, table: str, what: str, column: str = "instance_id") -> None:
        await rooms_only.query(f"update {table} set {what} where {column} = %s", made[name].instance_id)

    await change("off", "instance_room", "enabled = false")
    await change("paused", "instances", "status = 'paused'", "id")
    await change("deleted", "instances", "deleted_at = now()", "id")
    await change("leased", "instance_room", "lease_owner = 'w', lease_until = now()")
    await change("parked", "instance_room", "parked_reason = 'x'")
    await change("backing off", "instance_room", "next_try_at = now() + interval '1 hour'")
    await change("deferred", "event_backlog", "next_attempt_at = now() + interval '1 hour'")
    await change("failed event", "event_backlog", "status = 'failed'")
    await rooms_only.query(
        "update event_definitions set cooling_until = now() + interval '1 hour' where id = any(%s)",
        [made[name].definition_id for name in ("cooling", "cooling and deferred")],
    )
    other = await rooms_only.event(replace(made["cooling and deferred"], definition_id=made["event"].definition_id))
    await rooms_only.query("update event_backlog set next_attempt_at = now() + interval '1 hour' where id = %s", other)
    assert await page(database) == sorted(made[name].instance_id for name in ("event", "reply", "both"))


async def test_pages_follow_each_other_without_gap_or_double(database: Database, rooms_only: Running) -> None:
    due = []
    for number in range(11):
        room = await rooms_only.room(enabled=number % 4 != 3)
        await (rooms_only.reply(room) if number % 2 else rooms_only.event(room))
        if number % 4 != 3:
            due.append(room.instance_id)
    found: list[UUID] = []
    after = None
    while batch := await page(database, after, 3):
        assert len(batch) <= 3
        found += batch
        after = batch[-1]
    assert found == sorted(due)


async def test_it_reads_the_partial_indexes_and_no_table_as_a_whole(database: Database, rooms_only: Running) -> None:
    room = await rooms_only.room()
    await rooms_only.event(room)
    await rooms_only.query(
        "insert into instances (id, slug, name) select gen_random_uuid(), 'r' || n, 'x' from generate_series(1, 5000) n"
    )
    await rooms_only.query("insert into instance_room (instance_id) select id from instances on conflict do nothing")
    await rooms_only.query(
        "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body, verified,"
        " received_at, next_attempt_at)"
        " select gen_random_uuid(), id, %s, %s, gen_random_uuid(), '', true, now(), now() + interval '1 day'"
        " from instances where id <> %s",
        room.source_id,
        room.definition_id,
        room.instance_id,
    )
    await rooms_only.query("analyze")
    async with database.transaction() as conn:
        assert await rooms.due_page(conn, None, 100) == [room.instance_id]
        cursor = await conn.execute(
            "select coalesce(pg_stat_get_xact_numscans('instance_room'::regclass), 0) as sequential,"
            " coalesce(pg_stat_get_xact_tuples_returned('instance_room'::regclass), 0) as rows,"
            " coalesce(pg_stat_get_xact_numscans('event_backlog_pending'::regclass), 0) as steps"
        )
        row = await cursor.fetchone()
    assert row is not None and row["rows"] < 100
    assert row["steps"] < 100  # nor a step for each room whose event's time has not come


async def test_the_next_room_to_wake_up_is_known(database: Database, rooms_only: Running) -> None:
    async def wait() -> float | None:
        async with database.transaction() as conn:
            return await rooms.seconds_to_wake(conn)

    awake, later, sooner, parked, leased, off, backing_off = [await rooms_only.room() for _ in range(7)]
    await rooms_only.wake(awake)
    assert await wait() is None
    for room, change in (
        (later, "wake_at = now() + interval '300 seconds'"),
        (parked, "wake_at = now() + interval '10 seconds', parked_reason = 'x'"),
        (leased, "wake_at = now() + interval '10 seconds', lease_owner = 'w', lease_until = now()"),
        (off, "wake_at = now() + interval '10 seconds', enabled = false"),
        (backing_off, "wake_at = now() + interval '10 seconds', next_try_at = now() + interval '1 hour'"),
    ):
        await rooms_only.query(f"update instance_room set {change} where instance_id = %s", room.instance_id)
    first = await wait()
    assert first is not None and 100 < first <= 300
    await rooms_only.query(
        "update instance_room set wake_at = now() + interval '60 seconds' where instance_id = %s", sooner.instance_id
    )
    second = await wait()
    assert second is not None and second <= 60
