"""The admitting side of the backlog: an event gets in only while fewer than the cap of its instance are pending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

CAP: Final = 100
"""Pending events of one instance beyond which nothing new is admitted (behaviour, backlog)."""

_LOCK_SEED: Final = 0x526F6F6D
"""Seeds the hash that makes an instance's advisory lock, so that it meets no other user of advisory locks."""

Admitted = Literal["admitted", "full", "known"]


@dataclass(frozen=True, slots=True)
class Event:
    """A matched item on its way into the backlog. The body stays bytes: jsonb refuses NUL and lone surrogates."""

    id: UUID
    instance_id: UUID
    source_id: UUID
    definition_id: UUID
    delivery_id: UUID
    item: int
    raw_body: bytes = field(repr=False)
    content_type: str | None
    headers: Mapping[str, str] = field(repr=False)
    verified: bool
    traceparent: str | None
    received_at: datetime


async def pending(conn: AsyncConnection[Any], instance_id: UUID, cap: int = CAP) -> int:
    """How many events of an instance are pending; counting stops at ``cap``."""
    cursor = await conn.execute(
        """
        select count(*) as pending
        from (select from event_backlog where instance_id = %s and status = 'pending' limit %s) p
        """,
        (instance_id, cap),
    )
    row = await cursor.fetchone()
    return int(row["pending"]) if row else 0


async def pending_of(conn: AsyncConnection[Any], instance_ids: Sequence[UUID], cap: int = CAP) -> dict[UUID, int]:
    """The same for several instances at once."""
    cursor = await conn.execute(
        """
        select i.id, (select count(*) from (select from event_backlog
                                            where instance_id = i.id and status = 'pending' limit %s) p) as pending
        from unnest(%s::uuid[]) i (id)
        """,
        (cap, list(instance_ids)),
    )
    return {row["id"]: int(row["pending"]) for row in await cursor.fetchall()}


async def admit(conn: AsyncConnection[Any], event: Event, cap: int = CAP) -> Admitted:
    """Insert ``event`` unless the cap is reached, exactly, under any concurrency.

    Holds the instance's advisory lock until the transaction ends, so call it last but for short statements. ``known``:
    this item is in the backlog already. Offered not before its definition has cooled down.
    """
    await conn.execute(
        "select pg_advisory_xact_lock(hashtextextended(%s::text, %s))", (str(event.instance_id), _LOCK_SEED)
    )
    if await pending(conn, event.instance_id, cap) >= cap:
        return "full"
    cursor = await conn.execute(
        """
        insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, item, raw_body,
                                   content_type, headers, verified, traceparent, received_at, next_attempt_at)
        select %(id)s, %(instance)s, %(source)s, d.id, %(delivery)s, %(item)s, %(body)s,
               %(content_type)s, %(headers)s, %(verified)s, %(trace)s, %(received_at)s, greatest(now(), d.cooling_until)
        from event_definitions d where d.id = %(definition)s
        on conflict (delivery_id, item) do nothing
        """,
        {
            "id": event.id,
            "instance": event.instance_id,
            "source": event.source_id,
            "definition": event.definition_id,
            "delivery": event.delivery_id,
            "item": event.item,
            "body": event.raw_body,
            "content_type": event.content_type,
            "headers": Jsonb(dict(event.headers)),
            "verified": event.verified,
            "trace": event.traceparent,
            "received_at": event.received_at,
        },
    )
    return "admitted" if cursor.rowcount == 1 else "known"
