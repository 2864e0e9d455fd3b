"""One delivery as the database tells of it: its items, the events they became, the cycles and what those sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from room_common.domain.deliveries import Outcome
from room_common.postgres.database import Connection

Row = dict[str, Any]

MAX_ITEMS: Final = 100
MAX_CYCLES: Final = 20

CLASSIFIED: Final[tuple[Outcome, ...]] = (
    "matched",
    "no_match",
    "no_definitions",
    "backlog_full",
    "budget_exhausted",
    "room_disabled",
)
"""Outcomes of deliveries whose payload a definition can be asked about: verified, decoded, and no duplicate."""


async def items(conn: Connection, delivery_id: UUID) -> Sequence[Row]:
    """The ledger's rows of a delivery by item, with what is needed to decode it; none before it was decided."""
    cursor = await conn.execute(
        f"{_ITEM} where d.id = %s order by d.received_at, d.item limit %s", (delivery_id, MAX_ITEMS)
    )
    return await cursor.fetchall()


async def latest(conn: Connection, source_id: UUID, limit: int) -> Sequence[Row]:
    """The latest items of a source that a definition can be asked about, newest first."""
    cursor = await conn.execute(
        f"""
        {_ITEM} where d.source_id = %s and d.outcome = any(%s)
        order by d.received_at desc, d.id desc, d.item desc limit %s
        """,
        (source_id, list(CLASSIFIED), limit),
    )
    return await cursor.fetchall()


async def sources(conn: Connection, *, name: str, source_id: UUID | None, instance_id: UUID | None) -> Sequence[Row]:
    """The living sources of that name, or with that id; of one instance, or of all."""
    cursor = await conn.execute(
        """
        select s.id, s.name, s.source_type, s.instance_id, i.slug, nullif(i.models ->> 'fast', '') as fast_model
        from event_sources s join instances i on i.id = s.instance_id
        where s.deleted_at is null and i.deleted_at is null
          and (s.id = %(id)s::uuid or s.name = %(name)s) and (%(instance)s::uuid is null or i.id = %(instance)s)
        order by i.slug limit 10
        """,
        {"id": source_id, "name": name, "instance": instance_id},
    )
    return await cursor.fetchall()


async def receipt_time(conn: Connection) -> int:
    """The database's clock as a receipt's time: microseconds since the epoch."""
    cursor = await conn.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us")
    row = await cursor.fetchone()
    assert row is not None
    return int(row["us"])


async def replays(conn: Connection, delivery_id: UUID) -> Sequence[Row]:
    """The replays of a delivery, oldest first."""
    cursor = await conn.execute(
        """
        select id, min(received_at) as received_at from webhook_deliveries
        where replay_of = %s group by id order by 2, 1 limit 100
        """,
        (delivery_id,),
    )
    return await cursor.fetchall()


async def events(conn: Connection, delivery_id: UUID) -> Sequence[Row]:
    """The backlog rows that a delivery's items became."""
    cursor = await conn.execute(
        """
        select b.id, b.item, b.instance_id, b.status, b.verified, b.attempts, b.deferrals, b.matched_at,
               b.next_attempt_at, b.completed_at, b.notes, b.cycle_id, d.name as definition
        from event_backlog b join event_definitions d on d.id = b.event_definition_id
        where b.delivery_id = %s order by b.item
        """,
        (delivery_id,),
    )
    return await cursor.fetchall()


async def cycles(conn: Connection, event_id: UUID) -> Sequence[Row]:
    """The cycles that were given an event, oldest first: its present one, and those whose first message names it."""
    cursor = await conn.execute(
        """
        select c.id, c.reason, c.status, c.worker, c.resumes, c.steps, c.input_tokens, c.output_tokens, c.error_kind,
               substr(c.traceparent, 4, 32) as trace_id, c.started_at, c.finished_at
        from event_backlog b
        join room_cycles c on c.instance_id = b.instance_id and c.started_at >= b.matched_at
        where b.id = %(event)s
          and (c.id = b.cycle_id
               or exists (select from cycle_messages m where m.cycle_id = c.id and m.seq = 1
                          and strpos(m.content ->> 'content', 'Event ' || b.id) > 0))
        order by c.started_at limit %(limit)s
        """,
        {"event": event_id, "limit": MAX_CYCLES},
    )
    return await cursor.fetchall()


async def tool_calls(conn: Connection, cycle_id: UUID) -> Sequence[Row]:
    """The tools a cycle called, in order, with what they answered (null: nothing yet)."""
    cursor = await conn.execute(
        """
        select a.created_at, call -> 'function' ->> 'name' as name, call -> 'function' ->> 'arguments' as arguments,
               (select t.content ->> 'content' from cycle_messages t
                where t.cycle_id = a.cycle_id and t.role = 'tool' and t.seq > a.seq
                  and t.content ->> 'tool_call_id' = call ->> 'id' order by t.seq limit 1) as result
        from cycle_messages a
        cross join lateral jsonb_array_elements(
            case jsonb_typeof(a.content -> 'tool_calls') when 'array' then a.content -> 'tool_calls' else '[]' end)
            with ordinality c (call, place)
        where a.cycle_id = %s and a.role = 'assistant'
        order by a.seq, place
        """,
        (cycle_id,),
    )
    return await cursor.fetchall()


async def messages(conn: Connection, cycle_id: UUID) -> Sequence[Row]:
    """What a cycle wrote to people, in order."""
    cursor = await conn.execute(
        """
        select id, channel, target, text, status, attempts, error, provider_message_id,
               substr(traceparent, 4, 32) as trace_id, created_at, published_at, sent_at
        from outbound_messages where cycle_id = %s order by created_at, seq
        """,
        (cycle_id,),
    )
    return await cursor.fetchall()


_ITEM: Final = """
    select d.received_at, d.id, d.item, d.source_id, d.instance_id, d.outcome, d.reason, d.definition_id, d.verdicts,
           d.changes, d.id_conflict, d.llm_calls, d.tokens, d.size, d.trace_id, d.topic, d."partition", d."offset",
           d.replay_of, d.decided_at, s.name as source, s.source_type, s.config, i.slug as room, e.name as definition
    from webhook_deliveries d
    left join event_sources s on s.id = d.source_id
    left join instances i on i.id = d.instance_id
    left join event_definitions e on e.id = d.definition_id
"""
