"""What the panel's pages for building a room show: a source and why its deliveries did not verify, a definition, and
a conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from room_common.postgres.database import Connection

Row = dict[str, Any]

LATEST: Final = 10_000
"""The latest deliveries of a source among which failures are counted."""


async def source(conn: Connection, source_id: UUID) -> Row | None:
    """A living source with the room it feeds and what came in last, or None."""
    cursor = await conn.execute(
        """
        select s.id, s.name, s.source_type as type, s.enabled, s.config is not null as signed, s.instance_id,
               i.slug as room, i.name as room_name, d.id as delivery_id, d.received_at, d.outcome, d.reason
        from event_sources s
        join instances i on i.id = s.instance_id
        left join lateral (
            select d.id, d.received_at, d.outcome, d.reason from webhook_deliveries d
            where d.source_id = s.id order by d.received_at desc, d.id desc, d.item desc limit 1) d on true
        where s.id = %s and s.deleted_at is null and i.deleted_at is null
        """,
        (source_id,),
    )
    return await cursor.fetchone()


async def signature_failures(conn: Connection, source_id: UUID) -> Sequence[Row]:
    """Why deliveries did not verify, among the latest of a source: by cause, with how many and when last."""
    cursor = await conn.execute(
        """
        select reason, count(*) as items, max(received_at) as last_at
        from (select outcome, reason, received_at from webhook_deliveries
              where source_id = %s order by received_at desc, id desc, item desc limit %s) latest
        where outcome = 'bad_signature' group by reason order by items desc, reason
        """,
        (source_id, LATEST),
    )
    return await cursor.fetchall()


async def conversation(conn: Connection, instance: UUID, limit: int) -> Sequence[Row]:
    """What a room's agent wrote and what people answered, latest last."""
    cursor = await conn.execute(
        """
        select * from (
            (select id, true as ours, created_at as at, text, status, error as reason, target as who, cycle_id
             from outbound_messages where instance_id = %(instance)s order by created_at desc, id desc limit %(limit)s)
            union all
            (select id, false, received_at, text, status, reason, sender, cycle_id
             from room_inbox where instance_id = %(instance)s order by received_at desc, id desc limit %(limit)s)
        ) both_sides order by at desc, id desc limit %(limit)s
        """,
        {"instance": instance, "limit": limit},
    )
    return list(reversed(await cursor.fetchall()))


async def definition(conn: Connection, source_id: UUID, definition_id: UUID) -> Row | None:
    """A living definition of a source, or None."""
    cursor = await conn.execute(
        """
        select id, name, priority, version, matching_prompt as match, interpretation_prompt as interpret,
               cooldown_seconds, enabled, updated_at
        from event_definitions
        where id = %s and event_source_id = %s and deleted_at is null
        """,
        (definition_id, source_id),
    )
    return await cursor.fetchone()


async def open_sessions(conn: Connection) -> int:
    """Browsers that are signed in."""
    cursor = await conn.execute("select count(*) as sessions from panel_sessions where expires_at > now()")
    row = await cursor.fetchone()
    assert row is not None
    return int(row["sessions"])
