"""The overflow table: what ingest's role may do, its limits and totals, and claims by several at once."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from pydantic import SecretStr

from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.postgres.overflow import OverflowRecord
from room_common.postgres.overflow_connection import OverflowConnection, OverflowFull

pytestmark = pytest.mark.integration

LIMITS = {"max_rows": 1000, "max_bytes": 1 << 20}


def record(size: int = 100) -> OverflowRecord:
    return OverflowRecord(new_id(), "room.webhooks.raw", b"k" * 16, b"\x00\xff" * (size // 2), b"\x00headers")


def connection(dsn: str, seconds: float = 5.0) -> OverflowConnection:
    return OverflowConnection(SecretStr(dsn), "test", connect_seconds=5.0, seconds=seconds)


@pytest.fixture
async def table(overflow_dsn: str) -> OverflowConnection:
    return connection(overflow_dsn)


def test_the_role_can_do_nothing_else(database_dsn: str, overflow_dsn: str) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as owner:
        tables = [
            name
            for (name,) in owner.execute(
                "select oid::regclass::text from pg_class where relkind in ('r', 'p', 'v', 'S')"
                " and relnamespace = 'public'::regnamespace"
            ).fetchall()
        ]
    assert {"ingest_overflow", "event_backlog", "source_tokens", "ingest_overflow_total", "room_schema"} <= set(tables)
    with psycopg.connect(overflow_dsn, autocommit=True) as own:
        for name in tables:
            if name == "ingest_overflow":
                continue
            for statement in (f"select * from {name}", f"delete from {name}", f"insert into {name} default values"):
                with pytest.raises(errors.InsufficientPrivilege):
                    own.execute(statement.encode())
        for statement in (
            "update ingest_overflow set value = ''",
            "truncate ingest_overflow",
            "drop table ingest_overflow",
            "create table mine (a int)",
            "set role postgres",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                own.execute(statement.encode())
        assert own.execute("select count(*) from ingest_overflow").fetchone() == (0,)


async def test_records_come_back_as_they_were_oldest_first(table: OverflowConnection) -> None:
    records = [record(size) for size in (0, 2, 70_000)]
    await table.add(list(reversed(records)), **LIMITS)
    await table.add(records, **LIMITS)  # a second time under the same ids: nothing more
    total = await table.total()
    assert (total.rows, total.bytes) == (3, sum(one.size for one in records))
    assert total.oldest_seconds is not None
    assert total.oldest_seconds >= 0
    async with table.claim(rows=10, bytes=1 << 20, seconds=5) as claim:
        assert claim.records == records
        claim.done.append(records[0].id)
    async with table.claim(rows=10, bytes=1 << 20, seconds=5) as claim:
        assert claim.records == records[1:]
        claim.done += [one.id for one in records]
    assert (await table.total()).rows == 0
    assert (await table.total()).bytes == 0
    await table.close()


async def test_a_claim_is_bounded_by_rows_and_bytes_and_takes_at_least_one(table: OverflowConnection) -> None:
    records = [record(1000) for _ in range(5)]
    await table.add(records, **LIMITS)
    for rows, bytes, count in ((2, 1 << 20, 2), (10, 1, 1), (10, 2500, 3), (10, 1 << 20, 5)):
        async with table.claim(rows=rows, bytes=bytes, seconds=5) as claim:
            assert claim.records == records[:count]
    async with table.claim(rows=2, bytes=1 << 20, seconds=5, after=records[1].id) as claim:
        assert claim.records == records[2:4]
    await table.close()


@pytest.mark.parametrize("limits", [{"max_rows": 10, "max_bytes": 1 << 30}, {"max_rows": 1000, "max_bytes": 1240}])
async def test_the_limits_are_exact_with_several_writers(overflow_dsn: str, limits: dict[str, int]) -> None:
    writers = [connection(overflow_dsn, seconds=20) for _ in range(4)]

    async def write(one: OverflowConnection) -> int:
        stored = 0
        for _ in range(10):
            try:
                await one.add([record()], **limits)
                stored += 1
            except OverflowFull:
                pass
        return stored

    stored = sum(await asyncio.gather(*map(write, writers)))
    assert stored == 10  # a record has 124 bytes
    assert (await writers[0].total()).rows == 10
    for one in writers:
        await one.close()


async def test_two_who_claim_at_once_get_different_records(overflow_dsn: str) -> None:
    first, second = connection(overflow_dsn), connection(overflow_dsn)
    records = [record() for _ in range(6)]
    await first.add(records, **LIMITS)
    async with (
        first.claim(rows=3, bytes=1 << 20, seconds=5) as one,
        second.claim(rows=9, bytes=1 << 20, seconds=5) as two,
    ):
        assert one.records == records[:3]
        assert two.records == records[3:]
        two.done += [one.id for one in two.records]
    async with second.claim(rows=9, bytes=1 << 20, seconds=5) as again:
        assert again.records == records[:3]  # released, and still there
    await first.close()
    await second.close()


async def test_a_claim_that_is_cut_off_gives_everything_back(table: OverflowConnection) -> None:
    await table.add([record()], **LIMITS)
    with pytest.raises(DependencyUnavailable):
        async with table.claim(rows=3, bytes=1, seconds=0.2) as claim:
            claim.done += [one.id for one in claim.records]
            await asyncio.sleep(5)
    with pytest.raises(ZeroDivisionError):
        async with table.claim(rows=3, bytes=1, seconds=5) as claim:
            claim.done += [one.id for one in claim.records]
            raise ZeroDivisionError
    assert (await table.total()).rows == 1
    await table.close()


async def test_a_lost_connection_is_made_again(table: OverflowConnection, database_dsn: str) -> None:
    await table.add([record()], **LIMITS)
    with psycopg.connect(database_dsn, autocommit=True) as owner:
        owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'test'")
    with pytest.raises(DependencyUnavailable):
        await table.total()
    assert (await table.total()).rows == 1
    await table.close()


async def test_a_missing_table_is_unavailability(empty_database_dsn: str) -> None:
    table = connection(empty_database_dsn)
    with pytest.raises(DependencyUnavailable) as caught:
        await table.add([OverflowRecord(UUID(int=1), "t", b"", b"", b"")], **LIMITS)
    assert caught.value.kind == "unexpected"
    await table.close()
