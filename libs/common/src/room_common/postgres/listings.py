"""What an operator looks at: pages of rows, newest first.

Every list is a keyset page: rows strictly after ``after`` (the sort key of the last row of the page before) in the
order of an index, and no counting. Payloads and texts are columns of their own, which callers leave out for viewers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from room_common.postgres.database import Connection

Row = dict[str, Any]
Key = tuple[Any, ...]
ListName = Literal["deliveries", "backlog", "inbox", "cycles", "messages", "activity", "audit"]


@dataclass(frozen=True, slots=True)
class Listing:
    """One list: its statement up to ``where``, its sort key as (row's column, SQL) pairs, and its filters by name.

    ``private`` names the columns that only operators see.
    """

    select: str
    key: tuple[tuple[str, str], ...]
    filters: Mapping[str, str]
    private: frozenset[str] = field(default_factory=frozenset)


_DELIVERIES: Final = Listing(
    select="""
        select d.received_at, d.id, d.item, i.slug as room, s.name as source, d.outcome, e.name as definition, d.reason,
               d.verdicts, d.changes, d.id_conflict, d.llm_calls, d.tokens, d.size, d.trace_id, d.topic,
               d."partition", d."offset", d.replay_of, d.decided_at
        from webhook_deliveries d
        left join instances i on i.id = d.instance_id
        left join event_sources s on s.id = d.source_id
        left join event_definitions e on e.id = d.definition_id
    """,
    key=(("received_at", "d.received_at"), ("id", "d.id"), ("item", "d.item")),
    filters={
        "room": "d.instance_id = %(room)s",
        "source": "d.source_id = any(%(source)s)",
        "outcome": "d.outcome = %(outcome)s",
        "since": "d.received_at >= %(since)s",
        "id": "d.id = %(id)s",
        "until": "d.received_at < %(until)s",
    },
    # a model's answer that was neither yes nor no may repeat the payload
    private=frozenset({"verdicts"}),
)
_BACKLOG: Final = Listing(
    select="""
        select b.id, i.slug as room, s.name as source, e.name as definition, b.status, b.verified, b.attempts,
               b.deferrals, b.next_attempt_at, b.received_at, b.matched_at, b.completed_at, b.cycle_id, b.delivery_id,
               b.item, b.content_type, substr(b.traceparent, 4, 32) as trace_id, octet_length(b.raw_body) as size,
               b.notes, b.headers
        from event_backlog b
        join instances i on i.id = b.instance_id
        join event_sources s on s.id = b.source_id
        join event_definitions e on e.id = b.event_definition_id
    """,
    key=(("matched_at", "b.matched_at"), ("id", "b.id")),
    filters={
        "room": "b.instance_id = %(room)s",
        "status": "b.status = %(status)s",
        "since": "b.matched_at >= %(since)s",
        "id": "b.id = %(id)s",
        "delivery": "b.delivery_id = %(delivery)s",
    },
    private=frozenset({"notes", "headers"}),
)
_INBOX: Final = Listing(
    select="""
        select n.id, i.slug as room, n.channel, n.status, n.reason, n.attempts, n.cycle_id, n.received_at, n.read_at,
               substr(n.traceparent, 4, 32) as trace_id, n.sender, n.text
        from room_inbox n join instances i on i.id = n.instance_id
    """,
    key=(("received_at", "n.received_at"), ("id", "n.id")),
    filters={
        "room": "n.instance_id = %(room)s",
        "status": "n.status = %(status)s",
        "since": "n.received_at >= %(since)s",
        "id": "n.id = %(id)s",
    },
    private=frozenset({"sender", "text"}),
)
_CYCLES: Final = Listing(
    select="""
        select c.id, i.slug as room, c.conversation_id, c.epoch, c.reason, c.status, c.worker, c.resumes, c.steps,
               c.input_tokens, c.output_tokens, c.events, c.replies, c.error_kind,
               substr(c.traceparent, 4, 32) as trace_id, c.started_at, c.finished_at
        from room_cycles c join instances i on i.id = c.instance_id
    """,
    key=(("started_at", "c.started_at"), ("id", "c.id")),
    filters={
        "room": "c.instance_id = %(room)s",
        "status": "c.status = %(status)s",
        "since": "c.started_at >= %(since)s",
        "id": "c.id = %(id)s",
        "ids": "c.id = any(%(ids)s)",
    },
)
_MESSAGES: Final = Listing(
    select="""
        select m.id, i.slug as room, m.cycle_id, m.channel, m.target, m.seq, m.status, m.attempts, m.next_attempt_at,
               m.provider_message_id, m.error, substr(m.traceparent, 4, 32) as trace_id, m.created_at, m.published_at,
               m.sent_at, m.text
        from outbound_messages m join instances i on i.id = m.instance_id
    """,
    key=(("created_at", "m.created_at"), ("id", "m.id")),
    filters={
        "room": "m.instance_id = %(room)s",
        "status": "m.status = %(status)s",
        "since": "m.created_at >= %(since)s",
        "id": "m.id = %(id)s",
        "cycles": "m.cycle_id = any(%(cycles)s)",
    },
    private=frozenset({"text", "target"}),
)
_ACTIVITY: Final = Listing(
    select="""
        select a.id, i.slug as room, a.log_date, a.log_type, a.kind, a.severity, a.content, a.counts, a.event_count,
               a.cycle_id, a.occurred_at
        from room_activity_log a join instances i on i.id = a.instance_id
    """,
    key=(("occurred_at", "a.occurred_at"), ("id", "a.id")),
    filters={
        "room": "a.instance_id = %(room)s",
        "kind": "a.kind = %(kind)s",
        "since": "a.occurred_at >= %(since)s",
    },
)
_AUDIT: Final = Listing(
    select="""
        select g.id, g.occurred_at, g.actor, g.action, i.slug as room, g.subject, g.detail
        from audit_log g left join instances i on i.id = g.instance_id
    """,
    key=(("occurred_at", "g.occurred_at"), ("id", "g.id")),
    filters={
        "room": "g.instance_id = %(room)s",
        "actor": "g.actor = %(actor)s",
        "action": "g.action = %(action)s",
        "since": "g.occurred_at >= %(since)s",
    },
)
LISTINGS: Final[Mapping[ListName, Listing]] = {
    "deliveries": _DELIVERIES,
    "backlog": _BACKLOG,
    "inbox": _INBOX,
    "cycles": _CYCLES,
    "messages": _MESSAGES,
    "activity": _ACTIVITY,
    "audit": _AUDIT,
}


async def page(
    conn: Connection, name: ListName, filters: Mapping[str, object], *, after: Key | None, limit: int
) -> tuple[Sequence[Row], Key | None]:
    """Up to ``limit`` rows and the key to go on after, None at the end. Filters that are None don't filter.

    Raises ``KeyError`` for a filter that the list does not have.
    """
    listing = LISTINGS[name]
    parameters: dict[str, object] = {"limit": limit + 1}
    conditions = []
    for filter_name, value in filters.items():
        if value is not None:
            conditions.append(listing.filters[filter_name])
            parameters[filter_name] = value
    columns = ", ".join(sql for _, sql in listing.key)
    if after is not None:
        conditions.append(f"({columns}) < ({', '.join(f'%(after_{n})s' for n in range(len(listing.key)))})")
        parameters |= {f"after_{n}": value for n, value in enumerate(after)}
    where = f"where {' and '.join(conditions)}" if conditions else ""
    order = ", ".join(f"{sql} desc" for _, sql in listing.key)
    cursor = await conn.execute(f"{listing.select} {where} order by {order} limit %(limit)s", parameters)
    rows = await cursor.fetchall()
    if len(rows) <= limit:
        return rows, None
    kept = rows[:limit]
    return kept, tuple(kept[-1][column] for column, _ in listing.key)


async def source_ids(conn: Connection, name: str, instance: object) -> list[UUID]:
    """The ids of the sources with that name, of one instance or of all, deleted ones too: their deliveries remain."""
    cursor = await conn.execute(
        """
        select id from event_sources
        where name = %(name)s and (%(instance)s::uuid is null or instance_id = %(instance)s)
        """,
        {"name": name, "instance": instance},
    )
    return [row["id"] for row in await cursor.fetchall()]


async def instances(conn: Connection, *, after: str = "", limit: int = 500) -> Sequence[Row]:
    """The living instances behind that slug, with the state of their rooms."""
    cursor = await conn.execute(
        """
        select i.id, i.slug, i.name, i.status, i.timezone, i.token_budget_daily, r.enabled,
               r.outbound_channel as channel, r.lease_until > now() as running, r.fails, r.next_try_at,
               r.parked_reason, r.last_cycle_id, i.created_at,
               (select count(*) from event_backlog b where b.instance_id = i.id and b.status = 'pending') as pending,
               (select count(*) from event_sources s where s.instance_id = i.id and s.deleted_at is null) as sources
        from instances i join instance_room r on r.instance_id = i.id
        where i.deleted_at is null and i.slug > %s order by i.slug limit %s
        """,
        (after, limit),
    )
    return await cursor.fetchall()


async def instance_id(conn: Connection, slug: str) -> UUID | None:
    """The id of the living instance with that slug, or None."""
    cursor = await conn.execute("select id from instances where slug = %s and deleted_at is null", (slug,))
    row = await cursor.fetchone()
    return None if row is None else row["id"]


async def room(conn: Connection, instance: UUID) -> Row | None:
    """One instance with its mandate and whom it talks to."""
    cursor = await conn.execute(
        """
        select i.id, i.slug, i.name, i.status, i.timezone, i.locale, i.token_budget_daily, r.enabled,
               r.prompt as mandate, r.outbound_channel as channel, r.outbound_target as target,
               r.lease_until > now() as running, r.fails,
               r.next_try_at, r.parked_reason, r.last_cycle_id, i.created_at, i.updated_at
        from instances i join instance_room r on r.instance_id = i.id
        where i.id = %s
        """,
        (instance,),
    )
    return await cursor.fetchone()


async def sources(
    conn: Connection, instance: UUID, *, after: Key | None = None, limit: int | None = None, only: UUID | None = None
) -> Sequence[Row]:
    """An instance's living sources by name, with when the last delivery came in. No URL, no secret."""
    cursor = await conn.execute(
        """
        select s.id, s.name, s.source_type as type, s.enabled, s.config is not null as signed, s.created_at,
               (select count(*) from event_definitions d where d.event_source_id = s.id and d.deleted_at is null)
                   as definitions,
               (select max(d.received_at) from webhook_deliveries d where d.source_id = s.id) as last_received_at
        from event_sources s
        where s.instance_id = %(instance)s and s.deleted_at is null
          and (%(name)s::text is null or s.name > %(name)s) and (%(only)s::uuid is null or s.id = %(only)s)
        order by s.name limit %(limit)s
        """,
        {"instance": instance, "name": after[0] if after else None, "limit": limit, "only": only},
    )
    return await cursor.fetchall()


async def definitions(
    conn: Connection, instance: UUID, *, after: Key | None = None, limit: int | None = None, only: UUID | None = None
) -> Sequence[Row]:
    """An instance's living definitions by source, in the order they are asked."""
    source_name, priority, row_id = after or (None, None, None)
    cursor = await conn.execute(
        """
        select d.id, s.name as source, d.name, d.priority, d.version, d.matching_prompt as match,
               d.interpretation_prompt as interpret, d.cooldown_seconds, d.cooling_until, d.enabled, d.updated_at
        from event_definitions d join event_sources s on s.id = d.event_source_id
        where s.instance_id = %(instance)s and s.deleted_at is null and d.deleted_at is null
          and (%(source)s::text is null
               or (s.name, d.priority, d.id) > (%(source)s, %(priority)s::integer, %(id)s::uuid))
          and (%(only)s::uuid is null or d.id = %(only)s)
        order by s.name, d.priority, d.id limit %(limit)s
        """,
        {
            "instance": instance,
            "source": source_name,
            "priority": priority,
            "id": row_id,
            "limit": limit,
            "only": only,
        },
    )
    return await cursor.fetchall()


async def channels(
    conn: Connection, instance: UUID, *, after: Key | None = None, limit: int | None = None
) -> Sequence[Row]:
    """An instance's channels by type. No URL, no secret."""
    cursor = await conn.execute(
        """
        select id, channel_type as type, enabled, delivery, created_at from instance_channels
        where instance_id = %(instance)s and (%(type)s::text is null or channel_type > %(type)s)
        order by channel_type limit %(limit)s
        """,
        {"instance": instance, "type": after[0] if after else None, "limit": limit},
    )
    return await cursor.fetchall()


async def source(conn: Connection, source_id: UUID) -> Row | None:
    """One living source as :func:`sources` shows it, and its room; or None."""
    cursor = await conn.execute(
        """
        select i.id as instance_id, i.slug as room from event_sources s join instances i on i.id = s.instance_id
        where s.id = %s and s.deleted_at is null and i.deleted_at is null
        """,
        (source_id,),
    )
    owner = await cursor.fetchone()
    if owner is None:
        return None
    found = await sources(conn, owner["instance_id"], only=source_id)
    return owner | found[0] if found else None


async def definition(conn: Connection, definition_id: UUID) -> Row | None:
    """One living definition as :func:`definitions` shows it, its room and its source's id; or None."""
    cursor = await conn.execute(
        """
        select i.id as instance_id, i.slug as room, s.id as source_id
        from event_definitions d
        join event_sources s on s.id = d.event_source_id join instances i on i.id = s.instance_id
        where d.id = %s and d.deleted_at is null and s.deleted_at is null and i.deleted_at is null
        """,
        (definition_id,),
    )
    owner = await cursor.fetchone()
    if owner is None:
        return None
    found = await definitions(conn, owner["instance_id"], only=definition_id)
    return owner | found[0] if found else None


async def owner_of_source(conn: Connection, source_id: UUID) -> Row | None:
    """Name, instance and encrypted config of a living source, or None."""
    cursor = await conn.execute(
        "select id, name, instance_id, config from event_sources where id = %s and deleted_at is null", (source_id,)
    )
    return await cursor.fetchone()


async def owner_of_channel(conn: Connection, channel_id: UUID) -> Row | None:
    """Type and instance of a channel, or None."""
    cursor = await conn.execute(
        "select channel_type as name, instance_id from instance_channels where id = %s", (channel_id,)
    )
    return await cursor.fetchone()


async def payload(conn: Connection, event_id: UUID) -> Row | None:
    """The received bytes of a backlog row and what is needed to decode them, or None."""
    cursor = await conn.execute(
        """
        select b.instance_id, b.raw_body, b.content_type, b.headers from event_backlog b where b.id = %s
        """,
        (event_id,),
    )
    return await cursor.fetchone()


async def transcript(
    conn: Connection, cycle_id: UUID, *, after: int | None = None, limit: int | None = None
) -> Sequence[Row]:
    """The messages of a cycle behind ``after``, in order. Rows are only added, and in order: none comes late."""
    cursor = await conn.execute(
        """
        select seq, role, content, created_at from cycle_messages
        where cycle_id = %(cycle)s and (%(after)s::integer is null or seq > %(after)s) order by seq limit %(limit)s
        """,
        {"cycle": cycle_id, "after": after, "limit": limit},
    )
    return await cursor.fetchall()
