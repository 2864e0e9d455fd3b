"""The overflow table: where ingest keeps the records that Kafka did not acknowledge in time, until they are drained.

Size is counted by triggers in one row, exactly and whatever the number of rows. A record is one row under its id; a row
whose insert was answered too late may be there although its sender was told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """A record of Kafka. ``headers`` are Kafka's own bytes of them."""

    id: UUID
    topic: str
    key: bytes
    value: bytes
    headers: bytes

    @property
    def size(self) -> int:
        """Bytes that are counted for it."""
        return len(self.key) + len(self.value) + len(self.headers)


BEGINNING: Final = UUID(int=0)
"""Before every id."""


@dataclass(frozen=True, slots=True)
class OverflowTotal:
    """What is in the table. ``oldest_seconds`` is by the database's clock, None when it is empty."""

    rows: int
    bytes: int
    oldest_seconds: float | None


async def add(conn: Connection, records: Sequence[OverflowRecord], *, max_rows: int, max_bytes: int) -> bool:
    """Insert all; False where the table then holds more than the limits: the caller rolls back. Until the transaction
    ends no other add goes on, so that the limits are exact."""
    await conn.execute(
        """
        insert into ingest_overflow (id, topic, key, value, headers, size)
        select * from unnest(%b::uuid[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[], %b::int4[])
        on conflict (id) do nothing
        """,
        (
            [record.id for record in records],
            [record.topic for record in records],
            [record.key for record in records],
            [record.value for record in records],
            [record.headers for record in records],
            [record.size for record in records],
        ),
    )
    cursor = await conn.execute(
        "select rows <= %s and bytes <= %s as fits from room_overflow_total()", (max_rows, max_bytes)
    )
    row = await cursor.fetchone()
    return row is not None and bool(row["fits"])


async def claim(conn: Connection, *, after: UUID, rows: int, bytes: int) -> list[OverflowRecord]:
    """Lock the oldest records behind ``after`` that nobody else holds until the end of the transaction: at most
    ``rows``, and no more after ``bytes``."""
    cursor = await conn.execute(
        """
        with oldest as (
            select id, topic, key, value, headers, size from ingest_overflow
            where id > %s order by id limit %s for update skip locked
        )
        select id, topic, key, value, headers from (
            select *, sum(size) over (order by id rows between unbounded preceding and 1 preceding) as before
            from oldest
        ) counted
        where coalesce(before, 0) < %s order by id
        """,
        (after, rows, bytes),
        binary=True,
    )
    return [OverflowRecord(**row) for row in await cursor.fetchall()]


async def remove(conn: Connection, ids: Sequence[UUID]) -> None:
    """Delete records that are in Kafka."""
    await conn.execute("delete from ingest_overflow where id = any(%b::uuid[])", (list(ids),))


async def total_of(conn: Connection) -> OverflowTotal:
    """How much is in the table, in one look-up."""
    cursor = await conn.execute(
        """
        select total.rows, total.bytes,
               (select extract(epoch from clock_timestamp() - stored_at)::float8
                from ingest_overflow order by id limit 1) as oldest_seconds
        from room_overflow_total() total
        """
    )
    row: dict[str, Any] | None = await cursor.fetchone()
    assert row is not None
    return OverflowTotal(**row)
