"""Replies that are put aside until they can be read: those of one channel must not hold up everybody else's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from room_common.contracts import topics
from room_common.kafka.records import Record
from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class Waiting:
    """A reply that waits, as the record it came as; topic, partition and offset are not kept."""

    id: UUID
    record: Record


async def put_aside(conn: Connection, reply_id: UUID, record: Record, reason: str, seconds: float) -> bool:
    """Keep a reply and try it again after ``seconds``. False when it waits already."""
    cursor = await conn.execute(
        """
        insert into replies_waiting (id, key, value, headers, reason, next_try_at)
        values (%s, %s, %s, %s, %s, now() + make_interval(secs => %s))
        on conflict (id) do nothing
        """,
        (
            reply_id,
            record.key,
            record.value,
            Jsonb([[name, value.hex()] for name, value in record.headers]),
            reason,
            seconds,
        ),
    )
    return cursor.rowcount == 1


async def take_due(conn: Connection, limit: int, seconds: float) -> Sequence[Waiting]:
    """Replies whose time has come, oldest first; nobody else gets them for ``seconds``."""
    cursor = await conn.execute(
        """
        update replies_waiting w set next_try_at = now() + make_interval(secs => %s)
        from (select id from replies_waiting where next_try_at <= now()
              order by next_try_at limit %s for update skip locked) d
        where w.id = d.id
        returning w.id, w.key, w.value, w.headers, w.put_at
        """,
        (seconds, limit),
    )
    rows = sorted(await cursor.fetchall(), key=lambda row: (row["put_at"], row["id"]))
    return [Waiting(row["id"], _record(row["key"], row["value"], row["headers"])) for row in rows]


async def remove(conn: Connection, reply_id: UUID) -> None:
    """Forget a reply that has its fate."""
    await conn.execute("delete from replies_waiting where id = %s", (reply_id,))


async def count(conn: Connection) -> int:
    """How many replies wait."""
    cursor = await conn.execute("select count(*) as n from replies_waiting")
    row = await cursor.fetchone()
    return 0 if row is None else int(row["n"])


def _record(key: bytes | None, value: bytes | None, headers: Sequence[Sequence[str]]) -> Record:
    return Record(
        topic=topics.REPLIES_RAW,
        partition=-1,
        offset=-1,
        timestamp_ms=0,
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        headers=tuple((name, bytes.fromhex(text)) for name, text in headers),
    )
