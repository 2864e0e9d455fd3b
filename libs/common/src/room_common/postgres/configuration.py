"""Instances, rooms, channels, sources and definitions as an operator changes them.

Nothing is deleted here, only marked ``deleted_at``. Whoever calls decides what changes; every function is one statement
or a few of one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import errors
from psycopg.types.json import Jsonb

from room_common.postgres.database import Connection


async def lock_slug(conn: Connection, slug: str) -> None:
    """Let one transaction at a time change the instance of that slug, whether or not it exists yet."""
    await conn.execute("select pg_advisory_xact_lock(hashtextextended('room:instance:' || %s, 0))", (slug,))


async def knows_timezone(conn: Connection, name: str) -> bool:
    """Whether PostgreSQL, which has a time zone database of its own, can count days in that timezone."""
    try:
        async with conn.transaction():
            await conn.execute("select now() at time zone %s", (name,))
    except errors.InvalidParameterValue:
        return False
    return True


async def read_instance(conn: Connection, slug: str) -> dict[str, Any] | None:
    """Instance, room and channel of a slug, or None."""
    cursor = await conn.execute(
        """
        select i.id, i.name, i.timezone, i.status, r.enabled, r.prompt as mandate,
               r.outbound_channel, r.outbound_target, c.id as channel_id, c.delivery, c.config as channel_config
        from instances i
        join instance_room r on r.instance_id = i.id
        left join instance_channels c on c.instance_id = i.id and c.channel_type = r.outbound_channel and c.enabled
        where i.slug = %s and i.deleted_at is null
        """,
        (slug,),
    )
    return await cursor.fetchone()


async def read_sources(conn: Connection, instance_id: UUID) -> Sequence[dict[str, Any]]:
    """The living sources of an instance, by name."""
    cursor = await conn.execute(
        """
        select id, name, source_type, enabled, config from event_sources
        where instance_id = %s and deleted_at is null order by name
        """,
        (instance_id,),
    )
    return await cursor.fetchall()


async def read_definitions(conn: Connection, instance_id: UUID) -> Sequence[dict[str, Any]]:
    """The living definitions of an instance's living sources, in the order they are asked."""
    cursor = await conn.execute(
        """
        select d.id, d.event_source_id, d.name, d.priority, d.matching_prompt, d.interpretation_prompt,
               d.cooldown_seconds, d.enabled
        from event_definitions d join event_sources s on s.id = d.event_source_id
        where s.instance_id = %s and s.deleted_at is null and d.deleted_at is null
        order by d.priority, d.id
        """,
        (instance_id,),
    )
    return await cursor.fetchall()


async def insert_instance(conn: Connection, instance_id: UUID, slug: str, name: str, timezone: str) -> None:
    """A new instance and its room, which is empty so far."""
    await conn.execute(
        "insert into instances (id, slug, name, timezone) values (%s, %s, %s, %s)", (instance_id, slug, name, timezone)
    )
    await conn.execute("insert into instance_room (instance_id) values (%s)", (instance_id,))


async def update_instance(
    conn: Connection, instance_id: UUID, *, name: str, timezone: str, mandate: str, enabled: bool
) -> None:
    """Change an instance and its room."""
    await conn.execute(
        "update instances set name = %s, timezone = %s, updated_at = now() where id = %s", (name, timezone, instance_id)
    )
    await conn.execute(
        "update instance_room set prompt = %s, enabled = %s, updated_at = now() where instance_id = %s",
        (mandate, enabled, instance_id),
    )


async def read_settings(conn: Connection, instance_id: UUID) -> dict[str, Any]:
    """What an instance has beside its document: locale, daily budget, and the sections of its prompt."""
    cursor = await conn.execute(
        "select locale, token_budget_daily, prompts from instances where id = %s", (instance_id,)
    )
    row = await cursor.fetchone()
    assert row is not None
    return row


async def write_settings(
    conn: Connection, instance_id: UUID, *, locale: str, token_budget_daily: int | None, prompts: Sequence[Any]
) -> None:
    """Replace them."""
    await conn.execute(
        "update instances set locale = %s, token_budget_daily = %s, prompts = %s, updated_at = now() where id = %s",
        (locale, token_budget_daily, Jsonb(list(prompts)), instance_id),
    )


async def set_outbound(conn: Connection, instance_id: UUID, channel: str | None, target: str | None) -> None:
    """Say whom the room talks to; None: nobody."""
    await conn.execute(
        """
        update instance_room set outbound_channel = %s, outbound_target = %s, updated_at = now() where instance_id = %s
        """,
        (channel, target, instance_id),
    )


async def upsert_channel(conn: Connection, channel_id: UUID, instance_id: UUID, kind: str, delivery: str) -> UUID:
    """Make or enable an instance's channel of that type; returns its id."""
    cursor = await conn.execute(
        """
        insert into instance_channels (id, instance_id, channel_type, delivery) values (%s, %s, %s, %s)
        on conflict (instance_id, channel_type)
        do update set enabled = true, delivery = excluded.delivery, updated_at = now()
        returning id
        """,
        (channel_id, instance_id, kind, delivery),
    )
    row = await cursor.fetchone()
    assert row is not None
    found: UUID = row["id"]
    return found


async def set_channel_config(conn: Connection, channel_id: UUID, config: bytes | None) -> None:
    """Replace a channel's config, which is encrypted."""
    await conn.execute(
        "update instance_channels set config = %s, updated_at = now() where id = %s", (config, channel_id)
    )


async def disable_channel(conn: Connection, instance_id: UUID, kind: str) -> None:
    """Switch a channel off; its URL goes on to take replies, which are recorded as ignored."""
    await conn.execute(
        "update instance_channels set enabled = false, updated_at = now() where instance_id = %s and channel_type = %s",
        (instance_id, kind),
    )


async def has_valid_token(conn: Connection, *, source_id: UUID | None = None, channel_id: UUID | None = None) -> bool:
    """Whether a source or channel has a URL that works."""
    cursor = await conn.execute(
        """
        select exists (select from source_tokens
                       where (source_id = %s or channel_id = %s) and (valid_until is null or valid_until > now())) as ok
        """,
        (source_id, channel_id),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row["ok"])


async def insert_token(
    conn: Connection,
    token_sha256: bytes,
    token_encrypted: bytes,
    *,
    source_id: UUID | None = None,
    channel_id: UUID | None = None,
) -> None:
    """Store a token's digest and its encrypted copy, for a source or a channel."""
    await conn.execute(
        "insert into source_tokens (token_sha256, source_id, channel_id, token_encrypted) values (%s, %s, %s, %s)",
        (token_sha256, source_id, channel_id, token_encrypted),
    )


async def read_tokens(
    conn: Connection, *, source_id: UUID | None = None, channel_id: UUID | None = None
) -> Sequence[dict[str, Any]]:
    """The valid tokens of a source or channel, newest first: digest and encrypted copy."""
    cursor = await conn.execute(
        """
        select token_sha256, token_encrypted, created_at, valid_until from source_tokens
        where (source_id = %s or channel_id = %s) and (valid_until is null or valid_until > now())
        order by created_at desc
        """,
        (source_id, channel_id),
    )
    return await cursor.fetchall()


async def insert_source(
    conn: Connection, source_id: UUID, instance_id: UUID, *, name: str, kind: str, enabled: bool, config: bytes | None
) -> None:
    """A new source; ``config`` is encrypted."""
    await conn.execute(
        """
        insert into event_sources (id, instance_id, name, source_type, enabled, config) values (%s, %s, %s, %s, %s, %s)
        """,
        (source_id, instance_id, name, kind, enabled, config),
    )


async def update_source(conn: Connection, source_id: UUID, *, kind: str, enabled: bool, config: bytes | None) -> None:
    """Change a source; ``config`` is encrypted."""
    await conn.execute(
        "update event_sources set source_type = %s, enabled = %s, config = %s, updated_at = now() where id = %s",
        (kind, enabled, config, source_id),
    )


async def delete_source(conn: Connection, source_id: UUID) -> None:
    """Mark a source and its definitions deleted and let its URLs expire. Its events stay."""
    await conn.execute("update event_sources set deleted_at = now(), updated_at = now() where id = %s", (source_id,))
    await conn.execute(
        """
        update event_definitions set deleted_at = now(), updated_at = now()
        where event_source_id = %s and deleted_at is null
        """,
        (source_id,),
    )
    await conn.execute(
        """
        update source_tokens set valid_until = now()
        where source_id = %s and (valid_until is null or valid_until > now())
        """,
        (source_id,),
    )


async def insert_definition(
    conn: Connection,
    definition_id: UUID,
    source_id: UUID,
    *,
    name: str,
    priority: int,
    match: str,
    interpret: str,
    cooldown_seconds: int,
    enabled: bool,
) -> None:
    """A new definition, version 1."""
    await conn.execute(
        """
        insert into event_definitions (id, event_source_id, name, priority, matching_prompt, interpretation_prompt,
                                       cooldown_seconds, enabled)
        values (%s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (definition_id, source_id, name, priority, match, interpret, cooldown_seconds, enabled),
    )


async def update_definition(
    conn: Connection,
    definition_id: UUID,
    *,
    priority: int,
    match: str,
    interpret: str,
    cooldown_seconds: int,
    enabled: bool,
    new_version: bool,
) -> None:
    """Change a definition; ``new_version`` counts its version up."""
    await conn.execute(
        """
        update event_definitions
        set priority = %s, matching_prompt = %s, interpretation_prompt = %s, cooldown_seconds = %s, enabled = %s,
            version = version + %s, updated_at = now()
        where id = %s
        """,
        (priority, match, interpret, cooldown_seconds, enabled, int(new_version), definition_id),
    )


async def delete_definition(conn: Connection, definition_id: UUID) -> None:
    """Mark a definition deleted. Events that wait for it keep its prompts."""
    await conn.execute(
        "update event_definitions set deleted_at = now(), updated_at = now() where id = %s", (definition_id,)
    )
