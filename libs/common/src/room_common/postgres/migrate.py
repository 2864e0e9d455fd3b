"""Bring the schema to this release, step by step, and let services wait until it is there.

Migrations are plain SQL files ``postgres/migrations/NNNN_name.sql``. Each runs in one transaction together with its
entry in ``room_schema``, under an advisory lock that is held for that transaction only, so that a transaction pooler
in between does no harm. They only ever add (expand) or take away what no release in use needs (contract): therefore a
schema that is newer than the code is fine.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from room_common.errors import ConfigurationError, Defect, DependencyUnavailable
from room_common.postgres.database import Connection, Database
from room_common.postgres.failures import refusal
from room_common.service.parts import Part

OLDEST_SERVER = 14
"""Major version of PostgreSQL that is needed at least."""

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_LOCK = 0x726F6F6D  # "room": the advisory lock of migrations
_ATTEMPTS = 10
_LOCK_SECONDS = 600

_TABLE = """
create table if not exists room_schema (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. ``checksum`` is the SHA-256 of its text, in hex, line ends as in Unix."""

    version: int
    name: str
    sql: str
    checksum: str

    @property
    def label(self) -> str:
        """As its file is called: ``0001_baseline``."""
        return f"{self.version:04}_{self.name}"


def parse_migration(file_name: str, content: bytes) -> Migration:
    """Raises Defect for a name that is not ``NNNN_name.sql``."""
    found = _FILE.fullmatch(file_name)
    if found is None:
        raise Defect(f"{file_name}: migrations are called NNNN_name.sql")
    text = content.replace(b"\r\n", b"\n")
    return Migration(int(found[1]), found[2], text.decode(), hashlib.sha256(text).hexdigest())


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration of this release, oldest first. Raises Defect where their numbers are not 1, 2, 3..."""
    folder = resources.files("room_common.postgres") / "migrations"
    found = [parse_migration(file.name, file.read_bytes()) for file in folder.iterdir() if file.name.endswith(".sql")]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise Defect("the numbers of the migrations have a gap or occur twice")
    return tuple(found)


def latest() -> Migration:
    """The newest migration of this release."""
    return migrations()[-1]


async def current(conn: Connection) -> int:
    """Version of the schema in the database; 0 where there is none."""
    cursor = await conn.execute("select to_regclass('room_schema') is not null as present")
    row = await cursor.fetchone()
    if row is None or not row["present"]:
        return 0
    cursor = await conn.execute("select coalesce(max(version), 0) as version from room_schema")
    row = await cursor.fetchone()
    return 0 if row is None else int(row["version"])


def pending(
    steps: Sequence[Migration], applied: Sequence[tuple[int, str]], target: int | None
) -> tuple[Migration, ...]:
    """Which of ``steps`` are to be applied, given the (version, checksum) pairs that are.

    Raises ConfigurationError where an applied step differs from the file of this release, or is unknown though older.
    """
    known = {step.version: step for step in steps}
    newest = max(known, default=0)
    for version, checksum in applied:
        step = known.get(version)
        if step is None and version < newest:
            raise ConfigurationError(
                f"migration {version:04} is applied, but not part of this release; use its release"
            )
        if step is not None and step.checksum != checksum:
            raise ConfigurationError(
                f"migration {step.label} was applied with another text than this release has: the database belongs to a"
                " changed or unreleased version. Restore the released file; never edit an applied migration"
            )
    done = {version for version, _ in applied}
    return tuple(step for step in steps if step.version not in done and (target is None or step.version <= target))


def migrate(
    dsn: str,
    target: int | None = None,
    *,
    lock_timeout: float = 5.0,
    on_applied: Callable[[Migration], None] | None = None,
) -> list[Migration]:
    """Apply what is missing up to version ``target`` (all of it by default). Returns what was applied.

    A step that can't get a lock within ``lock_timeout`` seconds is rolled back and tried again, ten times, so that it
    never stands in the way of running services for long. Raises ConfigurationError for a server or a schema that this
    release can't work with, DependencyUnavailable where PostgreSQL is away or stays locked.
    """
    applied: list[Migration] = []
    try:
        with psycopg.connect(
            dsn, connect_timeout=10, row_factory=tuple_row, application_name="room-migrate", autocommit=True
        ) as conn:
            _check_server(conn)
            while (step := _apply_with_patience(conn, target, lock_timeout)) is not None:
                applied.append(step)
                if on_applied is not None:
                    on_applied(step)
    except psycopg.OperationalError as error:
        raise refusal(error, dsn) from error
    return applied


def _check_server(conn: psycopg.Connection[Any]) -> None:
    if conn.info.server_version < OLDEST_SERVER * 10_000:
        raise ConfigurationError(f"PostgreSQL {OLDEST_SERVER} or later is needed")


def _apply_with_patience(conn: psycopg.Connection[Any], target: int | None, lock_timeout: float) -> Migration | None:
    for attempt in range(_ATTEMPTS):
        try:
            return _apply_next(conn, target, lock_timeout)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(min(5.0, 0.5 * 2**attempt))
    raise Defect("unreachable")


def _apply_next(conn: psycopg.Connection[Any], target: int | None, lock_timeout: float) -> Migration | None:
    """Apply the next step, or none: several migrators at once take turns step by step."""
    with conn.transaction():
        conn.execute("select set_config('statement_timeout', '0', true)")
        conn.execute("select set_config('lock_timeout', %s, true)", (f"{_LOCK_SECONDS}s",))
        conn.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        conn.execute("select set_config('lock_timeout', %s, true)", (f"{round(lock_timeout * 1000)}ms",))
        if conn.execute("select to_regclass('room_schema')").fetchone() == (None,):
            conn.execute(_TABLE)
        rows = conn.execute("select version, checksum from room_schema order by version").fetchall()
        todo = pending(migrations(), rows, target)
        if not todo:
            return None
        step = todo[0]
        conn.execute(step.sql.encode())
        if conn.info.transaction_status is not TransactionStatus.INTRANS:
            raise Defect(f"migration {step.label} ends its own transaction")
        conn.execute(
            "insert into room_schema (version, name, checksum) values (%s, %s, %s)",
            (step.version, step.name, step.checksum),
        )
        return step


class SchemaGate(Part):
    """Holds the start of a service until the schema is at least that of this release.

    While it waits, /readyz names the migration. It never migrates: that is an operator's step (``room migrate``).
    """

    name = "schema"

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        async with self._database.transaction() as conn:
            version = await current(conn)
        missing = next((step for step in migrations() if step.version > version), None)
        if missing is not None:
            raise DependencyUnavailable("schema", f"waiting for migration {missing.label}")
