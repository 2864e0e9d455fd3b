"""The scheduler's clock: one row decides, without a leader, who emits which tick (design, services)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that this process won. ``seq`` is floor(database time / interval).

    ``expected``: rooms that the last finished tick woke, whoever emitted it.
    """

    seq: int
    now: datetime
    expected: int = 0


async def seconds_to_next(conn: Connection, interval: float) -> float:
    """Seconds until the database's clock reaches the next multiple of ``interval``."""
    cursor = await conn.execute(
        "select (%(i)s - mod(extract(epoch from clock_timestamp())::numeric, %(i)s::numeric))::float8 as wait",
        {"i": interval},
    )
    row = await cursor.fetchone()
    return float(row["wait"]) if row is not None else interval


async def win_tick(conn: Connection, interval: float) -> Tick | None:
    """Take the present tick, or None when somebody took it already. Ticks missed in a pause are not made up.

    A number that is far below the last one means that the interval was made longer or the database's clock was set
    back: the new number counts then, or the scheduler would be silent until the old one is reached again.
    """
    cursor = await conn.execute(
        """
        update scheduler_clock set seq = t.seq, emitted_at = t.now
        from (select floor(extract(epoch from clock_timestamp()) / %s)::bigint as seq, clock_timestamp() as now) t
        where id = 1 and (t.seq > scheduler_clock.seq or t.seq < scheduler_clock.seq - 10)
        returning t.seq, t.now, scheduler_clock.rooms
        """,
        (interval,),
    )
    row = await cursor.fetchone()
    return None if row is None else Tick(row["seq"], row["now"], row["rooms"])


async def note_rooms(conn: Connection, rooms: int) -> None:
    """Remember how many rooms a finished tick woke."""
    await conn.execute("update scheduler_clock set rooms = %s where id = 1", (rooms,))
