"""What the live feed reads again and again: cheap questions, each answered from an index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from room_common.postgres.database import Connection


async def clock(conn: Connection) -> datetime:
    """The database's time."""
    cursor = await conn.execute("select now() as now")
    row = await cursor.fetchone()
    assert row is not None
    now: datetime = row["now"]
    return now


async def running_cycles(conn: Connection, limit: int) -> Sequence[UUID]:
    """The cycles that run now, at most one for each room."""
    cursor = await conn.execute("select id from room_cycles where status = 'running' limit %s", (limit,))
    return [row["id"] for row in await cursor.fetchall()]
