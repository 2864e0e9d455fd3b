"""What goes and what stays, table by table."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.postgres import partitions, retention
from room_common.postgres.database import Database
from room_common.postgres.upkeep import Pace, Upkeep
from room_testing.activity_log import ActivityLog
from room_testing.running import Running, SeededRoom

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def go_on(_: float) -> bool:
    await asyncio.sleep(0)
    return True


def upkeep(database: Database, counted: Counter[str] | None = None, rows: int = 3) -> Upkeep:
    def count(kind: str, number: int) -> None:
        if counted is not None:
            counted[kind] += number

    return Upkeep(database, Pace(rows=rows, pause_seconds=0), pause=go_on, counted=count)


@pytest.fixture
def world(database_dsn: str) -> Running:
    return Running(database_dsn)


async def cycle(world: Running, room: SeededRoom, days: float, status: str = "succeeded", messages: int = 2) -> UUID:
    cycle_id = new_id()
    await world.query(
        "insert into room_cycles"
        " (id, instance_id, conversation_id, epoch, reason, status, worker, started_at, finished_at)"
        " values (%s, %s, %s, 1, 'pending', %s, 'w', now() - %s * interval '1 day',"
        " case when %s <> 'running' then now() - %s * interval '1 day' end)",
        cycle_id, room.instance_id, str(cycle_id), status, days + 0.1, status, days,
    )  # fmt: skip
    for seq in range(messages):
        await world.query(
            "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, 'user', '{}')", cycle_id, seq
        )
    return cycle_id


async def message(
    world: Running, room: SeededRoom, days: float, status: str, seq: int, cycle_id: UUID | None = None
) -> None:
    await world.query(
        "insert into outbound_messages (id, instance_id, cycle_id, channel, target, seq, text, status, created_at,"
        " lease_until, lease_owner) values (%s, %s, %s, 'local', 'me', %s, '', %s, now() - %s * interval '1 day',"
        " case when %s = 'sending' then now() end, 'w')",
        new_id(), room.instance_id, cycle_id, seq, status, days, status,
    )  # fmt: skip


async def names(world: Running, table: str, column: str = "status") -> list[str]:
    return [row["v"] for row in await world.query(f"select {column}::text as v from {table} order by 1")]


async def test_cycles_transcripts_and_messages_stay_for_thirty_days(database: Database, world: Running) -> None:
    room, other = await world.room(), await world.room()
    for days in (10, 29.9, 30.1, 31, 400):
        await cycle(world, room, days)
    await cycle(world, room, 50, "failed")
    await cycle(world, other, 50, "abandoned")
    await cycle(world, other, 60, "running")
    waiting = await cycle(world, room, 70)
    for seq, status in enumerate(("sent", "failed", "unknown", "queued", "published", "sending")):
        await message(world, room, 29, status, seq)
        await message(world, room, 31, status, 10 + seq, waiting)
    counted: Counter[str] = Counter()
    result = await upkeep(database, counted).retain()
    assert (result.done, result.failures) == (True, 0)
    assert await names(world, "room_cycles") == ["running", "succeeded", "succeeded", "succeeded"]
    assert await world.query("select 1 from room_cycles where id = %s", waiting), "an open message keeps its cycle"
    assert len(await world.query("select 1 from cycle_messages")) == 8
    assert await names(world, "outbound_messages") == sorted(
        ["sent", "failed", "unknown", *2 * ("queued", "published", "sending")]
    )
    assert (counted["cycles"], counted["messages"]) == (5, 3)


async def test_completed_events_and_read_replies_stay_for_ninety_days_and_open_ones_for_ever(
    database: Database, world: Running
) -> None:
    room = await world.room()
    for days in (89, 91, 500):
        for status in ("pending", "processing", "completed", "failed"):
            event = await world.event(room, age=days * 86400)
            await world.query(
                "update event_backlog set status = %s, matched_at = received_at, cycle_id = %s,"
                " completed_at = case when %s = 'completed' then received_at end where id = %s",
                status, new_id(), status, event,
            )  # fmt: skip
        for status in ("unread", "taken", "read", "failed", "ignored"):
            reply = await world.reply(room)
            await world.query(
                "update room_inbox set status = %s, received_at = now() - %s * interval '1 day',"
                " reason = case when %s = 'ignored' then 'disabled' end,"
                " read_at = case when %s = 'read' then now() - %s * interval '1 day' end where id = %s",
                status, days, status, status, days, reply,
            )  # fmt: skip
    # Old, but completed and read only now.
    late = await world.event(room, age=200 * 86400)
    await world.query("update event_backlog set status = 'completed', completed_at = now() where id = %s", late)
    read = await world.reply(room)
    await world.query(
        "update room_inbox set status = 'read', received_at = now() - interval '200 days', read_at = now()"
        " where id = %s",
        read,
    )
    assert (await upkeep(database).retain()).failures == 0
    assert Counter(await names(world, "event_backlog")) == {"pending": 3, "processing": 3, "failed": 3, "completed": 2}
    assert Counter(await names(world, "room_inbox")) == {"unread": 3, "taken": 3, "failed": 3, "read": 2, "ignored": 1}


async def test_keys_usage_processes_and_runs(database: Database, world: Running) -> None:
    room = await world.room()
    for hours in (-1, 1):
        await world.query(
            "insert into webhook_dedup values (%s, %s, 'x', %s, 0, now() + %s * interval '1 hour')",
            room.source_id, str(hours), new_id(), hours,
        )  # fmt: skip
        await world.query(
            "insert into service_state (service, process, version, seen_at)"
            " values ('matcher', %s, '1', now() - interval '24 hours' + %s * interval '1 minute')",
            str(hours), hours,
        )  # fmt: skip
        await world.query(
            "insert into token_usage values (%s, (now() at time zone 'UTC')::date - 400 + %s, 'fast', 1)",
            room.instance_id, hours,
        )  # fmt: skip
        await world.query(
            "insert into job_runs (job, day) values ('aging', (now() at time zone 'UTC')::date - 90 + %s)", hours
        )
    assert (await upkeep(database).retain()).failures == 0
    assert await names(world, "webhook_dedup", "dedup_key") == ["1"]
    assert await names(world, "service_state", "process") == ["1"]
    assert len(await names(world, "token_usage", "day")) == 1
    assert len(await names(world, "job_runs", "day")) == 1


async def test_what_was_deleted_goes_after_thirty_days_in_an_order_that_works(
    database: Database, world: Running
) -> None:
    gone, kept, live = await world.room(), await world.room(), await world.room()
    for number, room in enumerate((gone, kept, live)):
        made = await cycle(world, room, 1)
        await message(world, room, 1, "queued", 1, made)
        for _ in range(7):
            await world.event(room)
        await world.reply(room)
        await world.query("insert into token_usage values (%s, current_date, 'fast', 1)", room.instance_id)
        channel = new_id()
        await world.query(
            "insert into instance_channels (id, instance_id, channel_type) values (%s, %s, 'local')",
            channel, room.instance_id,
        )  # fmt: skip
        for token, source, of_channel in ((1, room.source_id, None), (2, None, channel)):
            await world.query(
                "insert into source_tokens (token_sha256, source_id, channel_id, token_encrypted)"
                " values (%s, %s, %s, 'x')",
                bytes([number, token]) * 16, source, of_channel,
            )  # fmt: skip
        await world.query(
            "insert into room_activity_log (id, instance_id, log_date, kind, content)"
            " values (%s, %s, current_date, 'x', '')",
            new_id(), room.instance_id,
        )  # fmt: skip
    for room, days in ((gone, 31), (kept, 29)):
        await world.query(
            "update instances set deleted_at = now() - %s * interval '1 day' where id = %s", days, room.instance_id
        )
    counted: Counter[str] = Counter()
    result = await upkeep(database, counted, rows=2).retain()
    assert (result.done, result.failures) == (True, 0)
    assert {row["id"] for row in await world.query("select id from instances")} == {kept.instance_id, live.instance_id}
    for table in ("instance_room", "event_sources", "event_backlog", "room_cycles", "outbound_messages", "room_inbox"):
        assert not await world.query(f"select 1 from {table} where instance_id = %s", gone.instance_id), table
        assert await world.query(f"select 1 from {table} where instance_id = %s", kept.instance_id), table
    assert len(await world.query("select 1 from source_tokens")) == 4
    assert counted["instances"] > 12


async def test_sources_definitions_and_tokens_of_a_living_room(database: Database, world: Running) -> None:
    room, busy = await world.room(), await world.room()
    for number, one in enumerate((room, busy)):
        await world.query(
            "insert into source_tokens (token_sha256, source_id, token_encrypted) values (%s, %s, 'x')",
            bytes([number]) * 32, one.source_id,
        )  # fmt: skip
        await world.query(
            "update event_sources set deleted_at = now() - interval '31 days' where id = %s", one.source_id
        )
        await world.query(
            "update event_definitions set deleted_at = now() - interval '31 days' where id = %s", one.definition_id
        )
    await world.event(busy)
    other = await world.room()
    for number, days in ((8, 29), (9, 31)):
        await world.query(
            "insert into source_tokens (token_sha256, source_id, token_encrypted, valid_until)"
            " values (%s, %s, 'x', now() - %s * interval '1 day')",
            bytes([number]) * 32, other.source_id, days,
        )  # fmt: skip
    assert (await upkeep(database).retain()).failures == 0
    # An event that nobody decided keeps what explains it; no token leads there any more.
    assert {row["id"] for row in await world.query("select id from event_sources")} == {busy.source_id, other.source_id}
    assert {row["id"] for row in await world.query("select id from event_definitions")} == {
        busy.definition_id,
        other.definition_id,
    }
    assert [row["t"] for row in await world.query("select token_sha256 as t from source_tokens")] == [bytes([8]) * 32]


async def test_everything_that_refers_to_a_purged_row_is_purged_before(world: Running) -> None:
    """A table that a later migration adds has to be added to the purge, too."""
    references = await world.query(
        "select conrelid::regclass::text as child, confrelid::regclass::text as parent from pg_constraint"
        " where contype = 'f' and connamespace = 'public'::regnamespace"
    )
    order = [table for table, _ in retention._OF_AN_INSTANCE]
    for reference in references:
        child, parent = reference["child"], reference["parent"]
        if parent not in order:
            continue
        assert child in order, f"{child} refers to {parent} and is not purged with its instance"
        assert len(order) - 1 - order[::-1].index(child) < order.index(parent), f"{child} has to go before {parent}"


async def test_rows_that_others_hold_are_left_and_nobody_waits(
    database: Database, world: Running, database_dsn: str
) -> None:
    room = await world.room()
    for key in "abcdef":
        await world.query(
            "insert into webhook_dedup values (%s, %s, 'x', %s, 0, now() - interval '1 hour')",
            room.source_id, key, new_id(),
        )  # fmt: skip
    async with await psycopg.AsyncConnection.connect(database_dsn) as other:
        await other.execute("select from webhook_dedup where dedup_key in ('a', 'b') for update")
        assert (await upkeep(database).retain()).done
        assert await names(world, "webhook_dedup", "dedup_key") == ["a", "b"]
    await upkeep(database).retain()
    assert await names(world, "webhook_dedup", "dedup_key") == []


async def deliver(world: Running, days: float) -> None:
    await world.query(
        'insert into webhook_deliveries (received_at, id, outcome, size, topic, "partition", "offset")'
        " values (now() - %s * interval '1 day', %s, 'matched', 0, 't', 0, 0)",
        days, new_id(),
    )  # fmt: skip


async def partition_names(world: Running) -> list[str]:
    rows = await world.query(
        "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'webhook_deliveries'::regclass"
    )
    return sorted(row["name"] for row in rows if not row["name"].endswith("default"))


async def test_the_ledger_keeps_seven_days(database: Database, world: Running) -> None:
    before = await partition_names(world)
    # Days long past, as if made then; a row of a day without a partition is in the default one.
    today = (await world.query("select (now() at time zone 'UTC')::date as day"))[0]["day"]
    for ago in (9, 10, 11):
        day = today - timedelta(days=ago)
        await world.query(
            f"create table webhook_deliveries_{day:%Y%m%d} partition of webhook_deliveries"
            f" for values from ('{day} 00:00+00') to ('{day + timedelta(days=1)} 00:00+00')"
        )
    for days in (0, 3, 6.9, 9.5, 10, 20, 30):
        await deliver(world, days)
    await world.query(f"drop table {before[-1]}")
    counted: Counter[str] = Counter()
    work = upkeep(database, counted)
    assert (await work.partitions()).done
    await work.retain()
    assert await partition_names(world) == before, "those ahead are made, those behind are gone"
    ages = await world.query(
        "select extract(day from now() - received_at)::int as days from webhook_deliveries order by 1"
    )
    assert [row["days"] for row in ages] == [0, 3, 6]
    assert (counted["partitions_made"], counted["partitions_dropped"]) == (1, 3)
    assert counted["deliveries"] == 2
    await work.partitions()
    assert (counted["partitions_made"], counted["partitions_dropped"]) == (1, 3)


async def test_two_at_once_make_and_drop_partitions_without_an_error(database: Database, world: Running) -> None:
    for name in await partition_names(world):
        await world.query(f"drop table {name}")
    await asyncio.gather(*(upkeep(database).partitions() for _ in range(4)))
    assert len(await partition_names(world)) == 11


async def test_nobody_queues_long_behind_a_partition_that_is_in_use(
    database: Database, world: Running, database_dsn: str
) -> None:
    newest = (await partition_names(world))[-1]
    await world.query(f"drop table {newest}")
    async with await psycopg.AsyncConnection.connect(database_dsn) as other:
        await other.execute("select 1 from webhook_deliveries")
        with pytest.raises(DependencyUnavailable, match="lock_timeout"):
            async with database.transaction() as conn:
                await partitions.ensure(conn, lock_seconds=0.1)
    await upkeep(database).partitions()
    assert newest in await partition_names(world)


async def test_the_dry_run_says_what_a_run_does(database: Database, world: Running, log: ActivityLog) -> None:
    room = await world.room()
    for days in (31, 40):
        await cycle(world, room, days)
        await message(world, room, days, "sent", int(days))
    async with database.transaction() as conn:
        expected = await retention.count(conn)
    counted: Counter[str] = Counter()
    await upkeep(database, counted).retain()
    assert +counted == {kind: number for kind, number in expected.items() if number}
    assert set(expected) == set(retention.KINDS)
