"""Tools of instances: what is configured, what was confirmed, and how they were last seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from room_common.contracts.tool_config import ToolKind
from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One server or function of an instance. ``config`` is encrypted; ``version`` changes with every change of it."""

    id: UUID
    name: str
    kind: ToolKind
    config: bytes | None = field(repr=False)
    allowed: Sequence[str]
    verified_only: Sequence[str]
    pins: Mapping[str, str]
    version: datetime


async def enabled(conn: Connection, instance_id: UUID) -> list[ToolRow]:
    """What an instance may use, by name."""
    cursor = await conn.execute(
        """
        select id, name, kind, config, allowed, verified_only, pins, updated_at as version from instance_tools
        where instance_id = %s and enabled order by name
        """,
        (instance_id,),
    )
    return [ToolRow(**row) for row in await cursor.fetchall()]


async def has_guarded(conn: Connection, instance_id: UUID) -> bool:
    """Whether an instance has a tool that needs verified events."""
    cursor = await conn.execute(
        "select 1 from instance_tools where instance_id = %s and enabled and verified_only <> '{}' limit 1",
        (instance_id,),
    )
    return await cursor.fetchone() is not None


async def report(
    conn: Connection, tool_id: UUID, version: datetime, seen: Mapping[str, Any] | None, error: str | None
) -> None:
    """How a server was found. What it offers for the first time is pinned as it is, and later changes are not.

    ``seen`` holds ``sha256`` and ``description`` by the tool's name, None when nothing was found. A row that was
    changed meanwhile is left alone.
    """
    await conn.execute(
        """
        update instance_tools
        set checked_at = now(), error = %(error)s, seen = coalesce(%(seen)s, seen),
            pins = (select coalesce(jsonb_object_agg(s.key, s.value -> 'sha256'), '{}')
                    from jsonb_each(coalesce(%(seen)s, '{}')) s) || pins
        where id = %(id)s and updated_at = %(version)s
        """,
        {"id": tool_id, "version": version, "seen": None if seen is None else Jsonb(dict(seen)), "error": error},
    )


async def confirm(conn: Connection, instance_id: UUID, name: str) -> list[str] | None:
    """Pin a server's tools as they were last seen; returns the names that changed, None without such a server."""
    cursor = await conn.execute(
        "select id, pins, seen from instance_tools where instance_id = %s and name = %s for update", (instance_id, name)
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    confirmed = {tool: found["sha256"] for tool, found in row["seen"].items()}
    await conn.execute(
        "update instance_tools set pins = %s, updated_at = now() where id = %s", (Jsonb(confirmed), row["id"])
    )
    return sorted(tool for tool, digest in confirmed.items() if row["pins"].get(tool) != digest)


async def configured(conn: Connection, instance_id: UUID) -> Sequence[Mapping[str, Any]]:
    """Every server and function of an instance, for comparing with a document."""
    cursor = await conn.execute(
        """
        select id, name, kind, enabled, config, allowed, verified_only from instance_tools
        where instance_id = %s order by name
        """,
        (instance_id,),
    )
    return await cursor.fetchall()


async def listed(
    conn: Connection, instance_id: UUID, *, after: str = "", limit: int | None = None
) -> Sequence[Mapping[str, Any]]:
    """The servers and functions of an instance, by name, with its health and its tools. No URL, no secret.

    A tool is ``on``, ``changed`` (off until confirmed), ``missing`` (allowed and not offered) or ``unknown`` (nobody
    has asked yet).
    """
    cursor = await conn.execute(
        """
        select t.id, t.name, t.kind, t.enabled, t.checked_at, t.error,
               coalesce((select jsonb_agg(jsonb_build_object(
                   'name', a.name,
                   'verified_only', a.name = any(t.verified_only),
                   'description', t.seen -> a.name ->> 'description',
                   'state', case when t.checked_at is null then 'unknown'
                                 when t.seen -> a.name is null then 'missing'
                                 when t.seen -> a.name ->> 'sha256' = t.pins ->> a.name then 'on'
                                 else 'changed' end) order by a.name)
                   from unnest(t.allowed) a (name)), '[]') as tools
        from instance_tools t where t.instance_id = %s and t.name > %s order by t.name limit %s
        """,
        (instance_id, after, limit),
    )
    return await cursor.fetchall()


async def upsert(
    conn: Connection,
    tool_id: UUID,
    instance_id: UUID,
    *,
    name: str,
    kind: ToolKind,
    enabled: bool,
    config: bytes | None,
    allowed: Sequence[str],
    verified_only: Sequence[str],
    forget: bool,
) -> None:
    """Add or change one. ``forget``: it is another server now, so that nothing of it is confirmed."""
    await conn.execute(
        """
        insert into instance_tools (id, instance_id, name, kind, enabled, config, allowed, verified_only)
        values (%(id)s, %(instance)s, %(name)s, %(kind)s, %(enabled)s, %(config)s, %(allowed)s, %(verified)s)
        on conflict (id) do update
        set kind = excluded.kind, enabled = excluded.enabled, config = excluded.config, allowed = excluded.allowed,
            verified_only = excluded.verified_only, updated_at = now(),
            pins = case when %(forget)s then '{}' else instance_tools.pins end,
            seen = case when %(forget)s then '{}' else instance_tools.seen end,
            checked_at = case when %(forget)s then null else instance_tools.checked_at end,
            error = case when %(forget)s then null else instance_tools.error end
        """,
        {
            "id": tool_id,
            "instance": instance_id,
            "name": name,
            "kind": kind,
            "enabled": enabled,
            "config": config,
            "allowed": list(allowed),
            "verified": list(verified_only),
            "forget": forget,
        },
    )


async def delete(conn: Connection, tool_id: UUID) -> None:
    """Forget one."""
    await conn.execute("delete from instance_tools where id = %s", (tool_id,))
