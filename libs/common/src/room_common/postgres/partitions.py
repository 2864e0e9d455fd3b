"""The day partitions of the ledger: made before they are needed, dropped when every row in them is too old."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

from psycopg import sql

from room_common.postgres.database import Connection

KEPT_DAYS: Final = 8
"""Days before today whose partition stays: seven whole days of deliveries, whatever the time of day, and one more
for records that are read late."""
_NAME: Final = re.compile(r"webhook_deliveries_(\d{8})")


async def ensure(conn: Connection, lock_seconds: float = 2.0) -> int:
    """Make the partitions from eight days back to two days ahead. Returns how many were missing.

    Raises ``DependencyUnavailable`` where a lock is not to be had in ``lock_seconds``: others queue behind a waiting
    one, so it is better to come again.
    """
    await _wait_for_locks(conn, lock_seconds)
    cursor = await conn.execute("select room_ensure_delivery_partitions() as made")
    row = await cursor.fetchone()
    return 0 if row is None else int(row["made"])


async def count_missing(conn: Connection) -> int:
    """How many days from eight back to two ahead have no partition."""
    cursor = await conn.execute(
        """
        select count(*) filter (where to_regclass('webhook_deliveries_' || to_char(day, 'YYYYMMDD')) is null) as missing
        from generate_series((now() at time zone 'UTC')::date - %s, (now() at time zone 'UTC')::date + 2, '1 day') day
        """,
        (KEPT_DAYS,),
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row["missing"])


async def outdated(conn: Connection) -> list[str]:
    """Names of the partitions that may go, oldest first."""
    cursor = await conn.execute(
        """
        select c.relname, (now() at time zone 'UTC')::date as today
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'webhook_deliveries'::regclass order by c.relname
        """
    )
    return [row["relname"] for row in await cursor.fetchall() if _is_outdated(row["relname"], row["today"])]


async def drop(conn: Connection, name: str, lock_seconds: float = 2.0) -> bool:
    """Drop one partition; False when it is gone already. Raises ``DependencyUnavailable`` as :func:`ensure` does.

    It can't be detached first without a lock on the whole ledger: a default partition forbids that.
    """
    await _wait_for_locks(conn, lock_seconds)
    # As when partitions are made: one process at a time, so that two never wait for each other's locks.
    await conn.execute("select pg_advisory_xact_lock(hashtextextended('room:partitions', 0))")
    if name not in await outdated(conn):
        return False
    await conn.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
    return True


def _is_outdated(name: str, today: date) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    day = datetime.strptime(found[1], "%Y%m%d").date()  # noqa: DTZ007 - a date has no timezone
    return (today - day).days > KEPT_DAYS


async def _wait_for_locks(conn: Connection, seconds: float) -> None:
    await conn.execute("select set_config('lock_timeout', %s, true)", (f"{round(seconds * 1000)}ms",))
