"""Migrations against a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from pydantic import SecretStr

from room_common.errors import ConfigurationError, Defect, DependencyUnavailable
from room_common.postgres import migrate as module
from room_common.postgres.database import Database
from room_common.postgres.migrate import Migration, SchemaGate, current, migrate, migrations, parse_migration
from room_common.postgres.settings import DatabaseSettings

pytestmark = pytest.mark.integration

ONE = parse_migration("0001_one.sql", b"create table one (id int); insert into one values (1);")
TWO = parse_migration("0002_two.sql", b"alter table one add column name text;")


def use(monkeypatch: pytest.MonkeyPatch, *steps: Migration) -> None:
    monkeypatch.setattr(module, "migrations", lambda: steps)


def one(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(statement.encode()).fetchone()
        return None if row is None else row[0]


def test_the_schema_of_this_release_applies_once(empty_database_dsn: str) -> None:
    seen: list[Migration] = []
    assert migrate(empty_database_dsn, on_applied=seen.append) == list(migrations()) == seen
    assert migrate(empty_database_dsn) == []
    assert one(empty_database_dsn, "select count(*) from room_schema") == len(migrations())


def test_steps_go_up_to_the_target(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ONE, TWO)
    assert migrate(empty_database_dsn, target=1) == [ONE]
    assert migrate(empty_database_dsn) == [TWO]


def test_migrators_at_once_apply_each_step_once(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ONE, TWO)
    with ThreadPoolExecutor(4) as pool:
        applied = [step for result in pool.map(lambda _: migrate(empty_database_dsn), range(4)) for step in result]
    assert sorted(step.version for step in applied) == [1, 2]
    assert one(empty_database_dsn, "select count(*) from one") == 1


def test_a_step_that_fails_leaves_nothing(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ONE, parse_migration("0002_bad.sql", b"create table two (); select 1/0;"))
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty_database_dsn)
    assert one(empty_database_dsn, "select to_regclass('two')") is None
    assert one(empty_database_dsn, "select max(version) from room_schema") == 1


def test_a_step_may_not_end_its_transaction(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, parse_migration("0001_bad.sql", b"create table two (); commit;"))
    with pytest.raises((Defect, psycopg.Error)):
        migrate(empty_database_dsn)
    assert one(empty_database_dsn, "select count(*) from pg_tables where tablename = 'room_schema'") in (0, 1)


def test_an_edited_step_is_refused(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ONE)
    migrate(empty_database_dsn)
    use(monkeypatch, parse_migration("0001_one.sql", b"create table other ();"), TWO)
    with pytest.raises(ConfigurationError, match="0001_one"):
        migrate(empty_database_dsn)


def test_a_locked_table_is_not_waited_for_long(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ONE, TWO)
    monkeypatch.setattr(module, "_ATTEMPTS", 2)
    migrate(empty_database_dsn, target=1)
    with psycopg.connect(empty_database_dsn) as conn:
        conn.execute("select * from one")
        with pytest.raises(DependencyUnavailable) as caught:
            migrate(empty_database_dsn, lock_timeout=0.05)
        assert caught.value.kind == "lock_timeout"
    assert migrate(empty_database_dsn) == [TWO]


def test_a_server_that_is_away_is_a_missing_dependency() -> None:
    with pytest.raises(DependencyUnavailable):
        migrate("host=127.0.0.1 port=1 dbname=x")


async def test_the_gate_waits_for_the_migration_it_names(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ONE, TWO)
    database = Database(DatabaseSettings(dsn=SecretStr(empty_database_dsn)))
    await database.start()
    gate = SchemaGate(database)
    for step in (ONE, TWO):
        with pytest.raises(DependencyUnavailable) as caught:
            await gate.start()
        assert str(caught.value) == f"schema: waiting for migration {step.label}"
        migrate(empty_database_dsn, target=step.version)
    await gate.start()
    use(monkeypatch, ONE)
    await gate.start()
    async with database.transaction() as conn:
        assert await current(conn) == 2
    await database.stop()
