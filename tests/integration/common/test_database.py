"""The pool against a real server, and against one that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from room_common.errors import DependencyUnavailable
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.parts import Parts

pytestmark = pytest.mark.integration


def settings(dsn: str, **changes: Any) -> DatabaseSettings:
    return DatabaseSettings(dsn=SecretStr(dsn), **{"connect_timeout": 2.0, **changes})


@pytest_asyncio.fixture
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    made = Database(settings(postgres_dsn, statement_timeout=0.3, lock_timeout=0.2, transaction_timeout=5.0))
    await made.start()
    yield made
    await made.stop()


async def value(database: Database, statement: str) -> Any:
    async with database.transaction() as conn:
        row = await (await conn.execute(statement.encode())).fetchone()
        assert row is not None
        return row["value"]


async def test_a_transaction_commits_or_rolls_back(database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("create table if not exists notes (id int primary key)")
        await conn.execute("insert into notes values (1)")
    with pytest.raises(LookupError):
        async with database.connection() as conn:
            await conn.execute("insert into notes values (2)")
            raise LookupError
    assert await value(database, "select count(*) as value from notes") == 1


async def test_an_error_of_the_statement_stays_its_own(database: Database) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await value(database, "select 1/0 as value")
    assert await value(database, "select 1 as value") == 1


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("select pg_sleep(5) as value", "statement_timeout"),
        ("select pg_terminate_backend(pg_backend_pid()) as value", "shutdown"),
    ],
)
async def test_what_waiting_heals_is_a_missing_dependency(database: Database, statement: str, kind: str) -> None:
    with pytest.raises(DependencyUnavailable) as caught:
        await value(database, statement)
    assert caught.value.kind == kind
    assert await value(database, "select 1 as value") == 1


async def test_a_lock_is_waited_for_within_bounds(database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("select pg_advisory_xact_lock(7)")
        with pytest.raises(DependencyUnavailable) as caught:
            await value(database, "select pg_advisory_xact_lock(7)::text as value")
    assert caught.value.kind == "lock_timeout"


async def test_a_transaction_that_lasts_too_long_is_cut_off(database: Database) -> None:
    with pytest.raises(DependencyUnavailable) as caught:
        async with database.transaction(timeout=0.1):
            await asyncio.Event().wait()
    assert caught.value.kind == "timeout"


async def test_a_timeout_of_the_caller_stays_the_callers(database: Database) -> None:
    with pytest.raises(TimeoutError):
        async with database.transaction():
            raise TimeoutError
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await value(database, "select pg_sleep(5) as value")


async def test_no_connection_left_is_told_in_time(postgres_dsn: str) -> None:
    made = Database(settings(postgres_dsn, pool_max=1, connect_timeout=0.2))
    await made.start()
    async with made.transaction():
        with pytest.raises(DependencyUnavailable) as caught:
            async with made.transaction():
                pass
        assert caught.value.kind == "pool_timeout"
    await made.stop()


async def test_behind_a_pooler_the_limits_come_with_each_transaction(postgres_dsn: str) -> None:
    made = Database(settings(postgres_dsn, pooler=True, statement_timeout=3.0))
    await made.start()
    assert await value(made, "select current_setting('statement_timeout') as value") == "3s"
    await made.stop()


async def test_before_it_has_started_it_is_not_there(postgres_dsn: str) -> None:
    made = Database(settings(postgres_dsn))
    assert made.ready() is not None
    with pytest.raises(DependencyUnavailable):
        async with made.transaction():
            pass
    await made.stop()


async def test_start_says_what_is_wrong(postgres_dsn: str) -> None:
    made = Database(settings(psycopg.conninfo.make_conninfo(postgres_dsn, dbname="no_such_database")))
    with pytest.raises(DependencyUnavailable):
        await made.start()
    assert (made.ready() or "").startswith("postgresql: ")
    nowhere = Database(settings("host=127.0.0.1 port=1 dbname=x"))
    with pytest.raises(DependencyUnavailable):
        await nowhere.start()


async def test_it_comes_back_after_the_server_did(room_parts: Parts) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    dsn = room_parts.create_database(migrated=False)
    registry = CollectorRegistry()
    made = Database(settings(dsn, connect_timeout=1.0, pool_min=2), registry=registry)
    await made.start()
    assert registry.get_sample_value("room_dependency_up", {"dependency": "postgresql"}) == 1
    await asyncio.to_thread(server.stop)
    try:
        with pytest.raises(DependencyUnavailable):
            await value(made, "select 1 as value")
        async with asyncio.timeout(30):
            while made.ready() is None:
                await asyncio.sleep(0.05)
        assert registry.get_sample_value("room_dependency_up", {"dependency": "postgresql"}) == 0
    finally:
        await asyncio.to_thread(server.start)
    async with asyncio.timeout(30):
        while made.ready() is not None:
            await asyncio.sleep(0.05)
    assert await value(made, "select 1 as value") == 1
    await made.stop()
    room_parts.drop_database(dsn)
