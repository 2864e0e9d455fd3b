"""The outbox: messages are rows first, and records in ``room.outbound`` after their transaction has committed.

The row decides and the record only wakes, so a row may be published twice, by two relays or after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from room_common.identity import new_id
from room_common.postgres.leases import Leased


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """What a record in ``room.outbound`` says of a row."""

    id: UUID
    instance_id: UUID
    cycle_id: UUID | None
    channel: str
    target: str
    text: str = field(repr=False)
    traceparent: str | None
    created_at: datetime


async def add(leased: Leased, cycle_id: UUID, text: str, *, traceparent: str | None = None) -> UUID | None:
    """Queue a message of a cycle for the room's channel; None, and nothing queued, when the room has none."""
    if leased.channel is None or leased.target is None:
        return None
    return await enqueue(leased.conn, leased.instance_id, leased.channel, leased.target, text, cycle_id, traceparent)


async def enqueue(
    conn: AsyncConnection[Any],
    instance_id: UUID,
    channel: str,
    target: str,
    text: str,
    cycle_id: UUID | None = None,
    traceparent: str | None = None,
) -> UUID:
    """Queue a message behind the earlier ones of its target. Locks the room's row until the transaction ends."""
    message_id = new_id()
    await conn.execute("select from instance_room where instance_id = %s for no key update", (instance_id,))
    await conn.execute(
        """
        insert into outbound_messages (id, instance_id, cycle_id, channel, target, seq, text, traceparent)
        select %(id)s, %(instance)s, %(cycle)s, %(channel)s, %(target)s, coalesce(max(seq), 0) + 1, %(text)s, %(trace)s
        from outbound_messages
        where instance_id = %(instance)s and channel = %(channel)s and target = %(target)s
        """,
        {
            "id": message_id,
            "instance": instance_id,
            "cycle": cycle_id,
            "channel": channel,
            "target": target,
            "text": text,
            "trace": traceparent,
        },
    )
    return message_id


async def unpublished(
    conn: AsyncConnection[Any], *, own_cycles: Sequence[UUID], older_than: float, stalled_after: float, limit: int
) -> list[OutboxRow]:
    """Rows that want a record, oldest first.

    Queued ones of ``own_cycles`` at once; queued ones of anybody once they are ``older_than`` seconds old, since the
    worker that wrote them is quicker unless it died; and published ones that have been due for ``stalled_after``
    seconds without progress, whose record was lost.
    """
    cursor = await conn.execute(
        """
        (select id, instance_id, cycle_id, channel, target, text, traceparent, created_at from outbound_messages
         where status = 'queued'
           and (cycle_id = any(%(own)s) or created_at <= now() - make_interval(secs => %(older)s))
         order by created_at limit %(limit)s)
        union all
        (select id, instance_id, cycle_id, channel, target, text, traceparent, created_at from outbound_messages
         where status = 'published' and next_attempt_at < now() - make_interval(secs => %(stalled)s)
           and (published_at is null or published_at < now() - make_interval(secs => %(stalled)s))
         order by next_attempt_at limit %(limit)s)
        """,
        {"own": list(own_cycles), "older": older_than, "stalled": stalled_after, "limit": limit},
    )
    rows = [OutboxRow(**row) for row in await cursor.fetchall()]
    return sorted(rows, key=lambda row: (row.created_at, row.id))


async def mark_published(conn: AsyncConnection[Any], ids: Sequence[UUID]) -> int:
    """The records of these rows are acknowledged. A row that was sent meanwhile stays as it is."""
    cursor = await conn.execute(
        """
        update outbound_messages set status = 'published', published_at = now()
        where id = any(%s) and status in ('queued', 'published')
        """,
        (list(ids),),
    )
    return cursor.rowcount
