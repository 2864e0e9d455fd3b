"""The writer of the ledger's batches on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from room_common.errors import Defect, DependencyUnavailable
from room_common.identity import new_id
from room_common.postgres import ledger
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_matcher.adapters.ledger_writer import LedgerWriter
from room_testing.matching import Matching

pytestmark = pytest.mark.integration


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    database = Database(DatabaseSettings(dsn=SecretStr(database_dsn)))
    await database.start()
    yield database
    await database.stop()


def drop() -> ledger.Entry:
    return ledger.Entry(
        received_at=datetime.now(UTC),
        id=new_id(),
        item=0,
        outcome="bad_signature",
        size=0,
        topic="t",
        partition=0,
        offset=0,
    )


async def test_rows_that_wait_together_share_a_transaction(database: Database, database_dsn: str) -> None:
    writer = LedgerWriter(database, rows=40, seconds=5)
    await writer.start()
    rows = [drop() for _ in range(40)]
    assert set(await asyncio.gather(*(writer.write(row) for row in rows))) == {"bad_signature"}
    (found,) = await Matching(database_dsn).query(
        "select count(*)::int as rows, count(distinct decided_at)::int as transactions from webhook_deliveries"
    )
    assert found == {"rows": 40, "transactions": 1}
    assert await writer.write(rows[0]) is None
    await writer.stop()


async def test_a_row_that_is_refused_fails_alone(database: Database) -> None:
    writer = LedgerWriter(database)
    await writer.start()
    bad = replace(drop(), trace_id="\x00")
    results = await asyncio.gather(*(writer.write(row) for row in (drop(), bad, drop())), return_exceptions=True)
    assert results[0] == results[2] == "bad_signature"
    assert isinstance(results[1], Defect)
    await writer.stop()


async def test_what_waits_is_written_before_the_end_and_nothing_is_taken_after(database: Database) -> None:
    writer = LedgerWriter(database, seconds=60)
    await writer.start()
    waiting = asyncio.create_task(writer.write(drop()))
    await asyncio.sleep(0)
    await writer.stop()
    assert await waiting == "bad_signature"
    with pytest.raises(DependencyUnavailable):
        await writer.write(drop())


async def test_a_database_that_is_away_is_told_to_everybody_who_waits(database_dsn: str) -> None:
    away = Database(DatabaseSettings(dsn=SecretStr(database_dsn)))
    writer = LedgerWriter(away, seconds=0.01)
    await writer.start()
    results = await asyncio.gather(*(writer.write(drop()) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [DependencyUnavailable] * 3
    await writer.stop()
