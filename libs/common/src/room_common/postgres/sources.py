"""What the matcher has to know about a delivery's token: source, instance, room and definitions, in one look-up.

Soft-deleted rows and expired tokens are returned as they are: what they mean for a record depends on when it was
received, and is for the cascade to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection


@dataclass(frozen=True, slots=True)
class Definition:
    """An enabled event definition, as far as classification needs it."""

    id: UUID
    name: str
    matching_prompt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Source:
    """An event source with all that decides about its deliveries.

    ``config`` and ``token_encrypted`` are ciphertexts. ``valid_until`` is the token's. ``room_enabled`` is None when
    the instance has no room. ``fast_model`` is the instance's own model of tier fast. ``definitions`` are the enabled
    ones in the order they are asked in.
    """

    id: UUID
    instance_id: UUID
    name: str
    source_type: str
    enabled: bool
    deleted: bool
    config: bytes | None = field(repr=False)
    token_encrypted: bytes = field(repr=False)
    valid_until: datetime | None
    instance_active: bool
    instance_deleted: bool
    room_enabled: bool | None
    fast_model: str | None
    definitions: tuple[Definition, ...]


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
