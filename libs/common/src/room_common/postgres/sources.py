"""What the matcher has to know about a delivery's token: source, instance, room and definitions, in one look-up.

Soft-deleted rows and expired tokens are returned as they are: what they mean for a record depends on when it was
received, and is for the cascade to say.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from room_common.domain.deliveries import Definition, Source


async def by_token(conn: AsyncConnection[Any], token_sha256: bytes) -> Source | None:
    """The source that a webhook token belongs to, or None when there is no such token (or it is a channel's)."""
    cursor = await conn.execute(
        """
        select s.id, s.instance_id, s.name, s.source_type, s.enabled, s.deleted_at is not null as deleted, s.config,
               t.token_encrypted, t.valid_until,
               i.status = 'active' as instance_active, i.deleted_at is not null as instance_deleted,
               r.enabled as room_enabled, nullif(i.models ->> 'fast', '') as fast_model
        from source_tokens t
        join event_sources s on s.id = t.source_id
        join instances i on i.id = s.instance_id
        left join instance_room r on r.instance_id = i.id
        where t.token_sha256 = %s
        """,
        (token_sha256,),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return Source(**row, definitions=await _definitions(conn, row["id"]))


async def _definitions(conn: AsyncConnection[Any], source_id: UUID) -> tuple[Definition, ...]:
    cursor = await conn.execute(
        """
        select id, name, matching_prompt from event_definitions
        where event_source_id = %s and enabled and deleted_at is null
        order by priority, id
        """,
        (source_id,),
    )
    return tuple([Definition(**row) async for row in cursor])
