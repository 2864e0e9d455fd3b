"""Single changes to what is configured: a new URL, on and off, the order of definitions, deletion.

Nothing is removed, only marked ``deleted_at``; events that wait keep their prompts. Whoever calls holds
:func:`room_common.postgres.configuration.lock_slug`, so that no document is applied meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from room_common.postgres import configuration
from room_common.postgres.database import Connection

Kind = Literal["source", "definition"]

PRIORITY_STEP: Final = 10
"""Between two definitions that were put in order there is room for others."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A living source or definition, and the instance it belongs to."""

    id: UUID
    name: str
    enabled: bool
    source_id: UUID
    instance_id: UUID
    slug: str


async def find(conn: Connection, kind: Kind, thing_id: UUID) -> Thing | None:
    """A source or definition that was not deleted, nor was what it belongs to; else None."""
    cursor = await conn.execute(_FIND[kind], (thing_id,))
    row = await cursor.fetchone()
    return None if row is None else Thing(**row)


async def expire_tokens(conn: Connection, source_id: UUID, grace_seconds: float) -> datetime | None:
    """Let the URLs that a source has end in ``grace_seconds``, unless they end before; None when it had none.

    Returns when the last of them ends.
    """
    await conn.execute(
        """
        update source_tokens set valid_until = now() + make_interval(secs => %(grace)s)
        where source_id = %(source)s and (valid_until is null or valid_until > now() + make_interval(secs => %(grace)s))
        """,
        {"source": source_id, "grace": grace_seconds},
    )
    cursor = await conn.execute(
        "select max(valid_until) as until from source_tokens where source_id = %s and valid_until >= now()",
        (source_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else row["until"]


async def enable(conn: Connection, kind: Kind, thing_id: UUID, enabled: bool) -> bool:
    """Switch a source or definition on or off. False when it was so already."""
    cursor = await conn.execute(_ENABLE[kind], {"id": thing_id, "enabled": enabled})
    return cursor.rowcount == 1


async def enable_room(conn: Connection, instance_id: UUID, enabled: bool) -> bool:
    """Switch a room on or off. False when it was so already.

    A cycle that runs sees it at its next step. Switching on also ends a room's being parked for failures.
    """
    cursor = await conn.execute(
        """
        update instance_room
        set enabled = %(enabled)s, updated_at = now(),
            fails = case when %(enabled)s then 0 else fails end,
            next_try_at = case when %(enabled)s then null else next_try_at end,
            parked_reason = case when %(enabled)s then null else parked_reason end
        where instance_id = %(instance)s and (enabled <> %(enabled)s or (%(enabled)s and parked_reason is not null))
        """,
        {"instance": instance_id, "enabled": enabled},
    )
    return cursor.rowcount == 1


async def order(conn: Connection, source_id: UUID, definitions: Sequence[UUID]) -> bool:
    """Have a source's definitions asked in this order. False, and nothing changed, unless these are all of them."""
    cursor = await conn.execute(
        "select id from event_definitions where event_source_id = %s and deleted_at is null for no key update",
        (source_id,),
    )
    known = [row["id"] for row in await cursor.fetchall()]
    if sorted(known) != sorted(definitions):
        return False
    await conn.execute(
        """
        update event_definitions d set priority = o.place * %(step)s, updated_at = now()
        from unnest(%(ids)s::uuid[]) with ordinality o (id, place)
        where d.id = o.id and d.priority <> o.place * %(step)s
        """,
        {"ids": list(definitions), "step": PRIORITY_STEP},
    )
    return True


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went with an instance."""

    sources: int
    tokens: int
    messages: int
    cycle_fenced: bool


async def delete_instance(conn: Connection, instance_id: UUID) -> Deleted:
    """Mark an instance deleted: its room off, its tokens expired, its epoch raised, its queued messages failed.

    A worker that runs its cycle can write nothing any more; the sweeper ends the cycle. A message that is with its
    provider right now is left to end there. The order of locks is the cycle's: the room's row first.
    """
    cursor = await conn.execute(
        "select lease_owner is not null as leased from instance_room where instance_id = %s for no key update",
        (instance_id,),
    )
    row = await cursor.fetchone()
    await conn.execute(
        """
        update instance_room
        set enabled = false, lease_epoch = lease_epoch + 1, lease_owner = null, lease_until = null, leased_at = null,
            wake_at = null, updated_at = now()
        where instance_id = %s
        """,
        (instance_id,),
    )
    cursor = await conn.execute(
        """
        update outbound_messages set status = 'failed', error = 'instance_deleted'
        where instance_id = %s and status in ('queued', 'published')
        """,
        (instance_id,),
    )
    messages = cursor.rowcount
    cursor = await conn.execute(
        """
        update source_tokens t set valid_until = now()
        where (t.source_id in (select id from event_sources where instance_id = %(instance)s)
               or t.channel_id in (select id from instance_channels where instance_id = %(instance)s))
          and (t.valid_until is null or t.valid_until > now())
        """,
        {"instance": instance_id},
    )
    tokens = cursor.rowcount
    sources = await configuration.read_sources(conn, instance_id)
    for source in sources:
        await configuration.delete_source(conn, source["id"])
    await conn.execute(
        "update instance_channels set enabled = false, updated_at = now() where instance_id = %s", (instance_id,)
    )
    await conn.execute("update instances set deleted_at = now(), updated_at = now() where id = %s", (instance_id,))
    return Deleted(len(sources), tokens, messages, row is not None and bool(row["leased"]))


_FIND: Final = {
    "source": """
        select s.id, s.name, s.enabled, s.id as source_id, s.instance_id, i.slug
        from event_sources s join instances i on i.id = s.instance_id
        where s.id = %s and s.deleted_at is null and i.deleted_at is null
    """,
    "definition": """
        select d.id, d.name, d.enabled, s.id as source_id, s.instance_id, i.slug
        from event_definitions d
        join event_sources s on s.id = d.event_source_id
        join instances i on i.id = s.instance_id
        where d.id = %s and d.deleted_at is null and s.deleted_at is null and i.deleted_at is null
    """,
}
_ENABLE: Final = {
    "source": """
        update event_sources set enabled = %(enabled)s, updated_at = now() where id = %(id)s and enabled <> %(enabled)s
    """,
    "definition": """
        update event_definitions set enabled = %(enabled)s, updated_at = now()
        where id = %(id)s and enabled <> %(enabled)s
    """,
}
