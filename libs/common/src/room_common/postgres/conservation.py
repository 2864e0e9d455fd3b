"""What the ledger has of deliveries that were read back from Kafka, and what waits elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from room_common.postgres.database import Connection
from room_common.postgres.leases import CLAIMABLE


async def undecided_items(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[int, ...] | None]:
    """Those of ``ids`` without a row for each of their items: the items that lack one, None where all do."""
    cursor = await conn.execute(
        """
        select k.id, d.found, d.items
        from unnest(%s::uuid[]) k (id)
        cross join lateral (select array_agg(distinct item) as found, max(items) as items
                            from webhook_deliveries d where d.id = k.id offset 0) d
        where d.found is null or cardinality(d.found) < d.items
        """,
        (list(ids),),
    )
    return {
        row["id"]: None if row["found"] is None else tuple(sorted(set(range(row["items"])) - set(row["found"])))
        for row in await cursor.fetchall()
    }


@dataclass(frozen=True, slots=True)
class Standing:
    """What waits in PostgreSQL. ``due_seconds``: for so long the first of the rooms that are due has been so."""

    parked_rooms: int
    failed_events: int
    pending_events: int
    due_rooms: int
    due_seconds: float
    unknown_messages: int


async def standing(conn: Connection) -> Standing:
    """Look at all rooms; messages of unknown fate count for a day."""
    cursor = await conn.execute(
        f"""
        select (select count(*) from instance_room where parked_reason is not null) as parked_rooms,
               (select count(*) from event_backlog where status = 'failed') as failed_events,
               (select count(*) from event_backlog where status = 'pending') as pending_events,
               due.rooms as due_rooms, coalesce(due.seconds, 0)::float8 as due_seconds,
               (select count(*) from outbound_messages
                where status = 'unknown' and created_at > now() - interval '1 day') as unknown_messages
        from (select count(*) as rooms, extract(epoch from now() - min(greatest(wake_at, next_try_at))) as seconds
              from instance_room r join instances i on i.id = r.instance_id
              where {CLAIMABLE}) due
        """
    )
    row = await cursor.fetchone()
    assert row is not None
    return Standing(**row)
