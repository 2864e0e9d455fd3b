"""Cycles and their transcripts. Everything here is written under a lease (behaviour 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from room_common.postgres import activity, events, inbox
from room_common.postgres.leases import Backoff, Leased

Role = Literal["system", "user", "assistant", "tool"]
Ending = Literal["succeeded", "failed", "abandoned"]

_CONVERSATION_TRIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Brief:
    """What a system prompt is made of, all written by operators, and the time by the database's clock."""

    name: str
    sections: Sequence[Mapping[str, str]]
    model: str | None
    timezone: str
    locale: str
    mandate: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Action:
    """A tool that an earlier cycle called, and what it answered; both are the model's or a tool's words."""

    cycle_id: UUID
    name: str
    arguments: str = field(repr=False)
    result: str = field(repr=False)


async def brief(leased: Leased) -> Brief:
    """The instance and its room as they are now."""
    cursor = await leased.conn.execute(
        """
        select i.name, i.prompts as sections, i.models ->> 'standard' as model, i.timezone, i.locale,
               r.prompt as mandate, now() as now
        from instances i join instance_room r on r.instance_id = i.id
        where i.id = %s
        """,
        (leased.instance_id,),
    )
    row = await cursor.fetchone()
    assert row is not None
    return Brief(**row)


async def begin(
    leased: Leased, cycle_id: UUID, reason: str, *, events_taken: int, replies_taken: int, traceparent: str | None
) -> str:
    """Record that a cycle runs; returns its conversation id, ``room:{instance}:{epoch ms}``, the next free ms."""
    cursor = await leased.conn.execute("select (extract(epoch from clock_timestamp()) * 1000)::bigint as ms")
    row = await cursor.fetchone()
    assert row is not None
    for ms in range(row["ms"], row["ms"] + _CONVERSATION_TRIES):
        conversation_id = f"room:{leased.instance_id}:{ms}"
        cursor = await leased.conn.execute(
            """
            insert into room_cycles
                (id, instance_id, conversation_id, epoch, reason, worker, events, replies, traceparent)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s)
            on conflict (conversation_id) do nothing
            """,
            (
                cycle_id,
                leased.instance_id,
                conversation_id,
                leased.lease.epoch,
                reason,
                leased.lease.owner,
                events_taken,
                replies_taken,
                traceparent,
            ),
        )
        if cursor.rowcount:
            await activity.append(
                leased.conn,
                leased.instance_id,
                "cycle_started",
                f"cycle started with {events_taken} event(s) and {replies_taken} human message(s)",
                cycle_id=cycle_id,
                counts={"cycle_started": 1, "events_taken": events_taken, "replies_taken": replies_taken},
            )
            return conversation_id
    raise AssertionError("no free conversation id")


async def append(leased: Leased, cycle_id: UUID, seq: int, message: Mapping[str, object]) -> None:
    """Write one message of the transcript; it is never changed. ``message`` has been made storable."""
    await leased.conn.execute(
        "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, %s, %s)",
        (cycle_id, seq, message["role"], Jsonb(message)),
    )


async def written(leased: Leased, cycle_id: UUID, seq: int) -> dict[str, Any] | None:
    """The message at this place of the transcript, if it is there: for the look after a commit without an answer."""
    cursor = await leased.conn.execute(
        "select content from cycle_messages where cycle_id = %s and seq = %s", (cycle_id, seq)
    )
    row = await cursor.fetchone()
    return None if row is None else row["content"]


async def count_step(leased: Leased, cycle_id: UUID, input_tokens: int, output_tokens: int) -> None:
    """One more model call, and what it took. What was counted since the step before it starts anew."""
    await leased.conn.execute(
        """
        update room_cycles
        set steps = steps + 1, losses = 0, calls_begun = '{}',
            input_tokens = input_tokens + %s, output_tokens = output_tokens + %s
        where id = %s
        """,
        (input_tokens, output_tokens, cycle_id),
    )


async def end(leased: Leased, cycle_id: UUID, status: Ending, error_kind: str | None = None) -> None:
    """Close the cycle's row. What it held is settled in the same transaction by the caller."""
    await leased.conn.execute(
        "update room_cycles set status = %s, error_kind = %s, finished_at = now() where id = %s and status = 'running'",
        (status, error_kind, cycle_id),
    )


async def status(conn: AsyncConnection[Any], cycle_id: UUID) -> str | None:
    """How the cycle stands, None if it never began: what to look at after a commit whose answer was lost."""
    cursor = await conn.execute("select status from room_cycles where id = %s", (cycle_id,))
    row = await cursor.fetchone()
    return None if row is None else row["status"]


async def earlier_actions(
    leased: Leased, cycle_ids: Sequence[UUID], event_ids: Sequence[UUID], limit: int
) -> list[Action]:
    """What tools did in these ended cycles and in all that were given one of these events, the last ``limit`` in order.

    Which cycles an event was given to is read from their first user message, which names it.
    """
    cursor = await leased.conn.execute(
        """
        with earlier as materialized (
            select c.id, c.started_at
            from room_cycles c join cycle_messages m on m.cycle_id = c.id and m.seq = 1
            where c.instance_id = %(instance)s and c.status <> 'running'
              and (c.id = any(%(cycles)s)
                   or exists (select from event_backlog e
                              where e.id = any(%(events)s) and c.started_at >= e.matched_at
                                and strpos(m.content ->> 'content', 'Event ' || e.id) > 0))
        )
        select e.id as cycle_id, call -> 'function' ->> 'name' as name, call -> 'function' ->> 'arguments' as arguments,
               t.content ->> 'content' as result
        from earlier e
        join cycle_messages a on a.cycle_id = e.id and a.role = 'assistant'
        cross join lateral jsonb_array_elements(coalesce(a.content -> 'tool_calls', '[]'::jsonb)) call
        join cycle_messages t on t.cycle_id = e.id and t.role = 'tool' and t.seq > a.seq
          and t.content ->> 'tool_call_id' = call ->> 'id'
          and not exists (select from cycle_messages b
                          where b.cycle_id = e.id and b.role = 'assistant' and b.seq > a.seq and b.seq < t.seq)
        order by e.started_at desc, t.seq desc
        limit %(limit)s
        """,
        {"instance": leased.instance_id, "cycles": list(cycle_ids), "events": list(event_ids), "limit": limit},
    )
    return [Action(**row) for row in reversed(await cursor.fetchall())]


async def abandon(leased: Leased, cycle_id: UUID, kind: str, backoff: Backoff | None) -> None:
    """End a cycle that comes to no result. With ``backoff`` it is an attempt of its events, else they lose nothing."""
    if backoff is None:
        returned = await events.put_back(leased, cycle_id)
    else:
        retried = await events.retry(leased, cycle_id, backoff, f"cycle abandoned: {kind}")
        returned = retried.pending
    replies = await inbox.put_back(leased, cycle_id)
    await events.cool(leased, cycle_id)
    await end(leased, cycle_id, "abandoned", kind)
    await activity.append(
        leased.conn,
        leased.instance_id,
        "cycle_abandoned",
        f"cycle abandoned ({kind}): {returned} event(s) and {replies} human message(s) wait again",
        severity="warning",
        cycle_id=cycle_id,
    )
