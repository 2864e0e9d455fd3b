"""What the matcher has to know about a delivery's token: source, instance, room and definitions, in one look-up.

Soft-deleted rows and expired tokens are returned as they are: what they mean for a record depends on when it was
received, and is for the cascade to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from room_common.domain.deliveries import Definition, Source


async def by_tokens(conn: AsyncConnection[Any], tokens_sha256: Sequence[bytes]) -> dict[bytes, Source]:
    """The sources that webhook tokens belong to; no entry where there is no such token, or it is a channel's."""
    cursor = await conn.execute(
        """
        select t.token_sha256,
               s.id, s.instance_id, s.name, s.source_type, s.enabled, s.deleted_at is not null as deleted, s.config,
               t.token_encrypted, t.valid_until,
               i.status = 'active' as instance_active, i.deleted_at is not null as instance_deleted,
               r.enabled as room_enabled, nullif(i.models ->> 'fast', '') as fast_model
        from source_tokens t
        join event_sources s on s.id = t.source_id
        join instances i on i.id = s.instance_id
        left join instance_room r on r.instance_id = i.id
        where t.token_sha256 = any(%s)
        """,
        (list(tokens_sha256),),
    )
    rows = {bytes(row.pop("token_sha256")): row for row in await cursor.fetchall()}
    definitions = await _definitions(conn, [row["id"] for row in rows.values()]) if rows else {}
    return {token: Source(**row, definitions=tuple(definitions.get(row["id"], ()))) for token, row in rows.items()}


async def _definitions(conn: AsyncConnection[Any], source_ids: Sequence[UUID]) -> dict[UUID, list[Definition]]:
    cursor = await conn.execute(
        """
        select event_source_id, id, name, matching_prompt from event_definitions
        where event_source_id = any(%s) and enabled and deleted_at is null
        order by priority, id
        """,
        (list(source_ids),),
    )
    found: dict[UUID, list[Definition]] = {}
    async for row in cursor:
        found.setdefault(row.pop("event_source_id"), []).append(Definition(**row))
    return found
