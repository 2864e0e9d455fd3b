"""Cycles that outlive their worker: released or swept while they run, and gone on with by whoever claims the room next.

Everything a cycle needs is in its rows: the transcript says which model calls are finished and which tools have
answered, and what a tool of ours did has committed together with its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from room_common.postgres import cycles
from room_common.postgres.leases import Backoff, Leased, seize_expired, seize_stray


@dataclass(frozen=True, slots=True)
class RunningCycle:
    """A cycle that began under an earlier lease.

    ``used_seconds`` is its time under leases so far, ``received`` are the times its events came in, ``verified`` says
    whether all of them are, ``sent`` whether it has queued a message. ``calls_begun`` are the last answer's calls of
    outside tools that may have happened.
    """

    id: UUID
    conversation_id: str
    traceparent: str | None
    started_at: datetime
    events: int
    replies: int
    steps: int
    used_seconds: float
    verified: bool
    sent: bool
    received: Sequence[datetime]
    calls_begun: Sequence[str]
    messages: Sequence[Mapping[str, Any]] = field(repr=False)


async def resume(leased: Leased) -> RunningCycle | None:
    """Go on with the room's running cycle under this lease; None when there is none. Done twice it counts once."""
    cursor = await leased.conn.execute(
        """
        with resumed as (
            update room_cycles c
            set resumes = c.resumes + (c.epoch <> %(epoch)s)::int, epoch = %(epoch)s, worker = %(owner)s
            where c.instance_id = %(instance)s and c.status = 'running'
            returning c.*
        )
        select r.id, r.conversation_id, r.traceparent, r.started_at, r.events, r.replies, r.steps, r.used_seconds,
               r.calls_begun,
               coalesce((select bool_and(b.verified) from event_backlog b
                         where b.instance_id = r.instance_id and b.cycle_id = r.id), true) as verified,
               exists (select from outbound_messages o
                       where o.instance_id = r.instance_id and o.cycle_id = r.id) as sent,
               array(select b.received_at from event_backlog b
                     where b.instance_id = r.instance_id and b.cycle_id = r.id order by 1) as received,
               array(select m.content from cycle_messages m where m.cycle_id = r.id order by m.seq) as messages
        from resumed r
        """,
        {"epoch": leased.lease.epoch, "owner": leased.lease.owner, "instance": leased.instance_id},
    )
    row = await cursor.fetchone()
    return None if row is None else RunningCycle(**row)


async def pause(leased: Leased, cycle_id: UUID, free_seconds: float) -> None:
    """Leave the cycle to whoever claims the room next; the caller releases in the same transaction.

    The time under this lease is added to what the cycle has used, except ``free_seconds`` that it waited for others.
    """
    await leased.conn.execute(
        """
        update room_cycles c
        set used_seconds = used_seconds
            + greatest(0, extract(epoch from least(now(), r.lease_until) - r.leased_at) - %(free)s)
        from instance_room r
        where c.id = %(cycle)s and c.status = 'running' and r.instance_id = c.instance_id
        """,
        {"free": free_seconds, "cycle": cycle_id},
    )


async def begin_calls(leased: Leased, cycle_id: UUID, call_ids: Sequence[str]) -> None:
    """Put on record that these calls of the last answer may happen from now on."""
    await leased.conn.execute(
        """
        update room_cycles
        set calls_begun = array(select distinct unnest(calls_begun || %s::text[]))
        where id = %s
        """,
        (list(call_ids), cycle_id),
    )


@dataclass(frozen=True, slots=True)
class Swept:
    """A room whose worker was lost. ``cycle_id`` is the cycle that went with it, if one had begun, and ``ended`` says
    why that goes no further, None when it will be resumed."""

    instance_id: UUID
    worker: str
    cycle_id: UUID | None
    ended: str | None = None


async def sweep_one(conn: AsyncConnection[Any], backoff: Backoff, max_losses: int) -> Swept | None:
    """Settle one room whose lease ran out: fence its worker and wake the room, which resumes its cycle. None: there is
    none.

    A cycle that has lost more than ``max_losses`` workers since its last step is abandoned, which is an attempt of its
    undecided events; that of a disabled room at once and without an attempt. Queued messages stand.
    """
    leased = await seize_expired(conn)
    if leased is None:
        return None
    cursor = await conn.execute(
        "update room_cycles set losses = losses + 1 where instance_id = %s and status = 'running' returning id, losses",
        (leased.instance_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        return Swept(leased.instance_id, leased.lease.owner, None)
    ended = None
    if not leased.runnable:
        ended = "disabled"
        await cycles.abandon(leased, row["id"], ended, None)
    elif row["losses"] > max_losses:
        ended = "lease_expired"
        await cycles.abandon(leased, row["id"], ended, backoff)
    return Swept(leased.instance_id, leased.lease.owner, row["id"], ended)


async def sweep_stray(conn: AsyncConnection[Any]) -> Swept | None:
    """Settle one running cycle that nobody would resume: end that of a disabled room, wake the room of another."""
    leased = await seize_stray(conn)
    if leased is None:
        return None
    cursor = await conn.execute(
        "select id from room_cycles where instance_id = %s and status = 'running'", (leased.instance_id,)
    )
    row = await cursor.fetchone()
    if row is None:
        return Swept(leased.instance_id, leased.lease.owner, None)
    if not leased.runnable:
        await cycles.abandon(leased, row["id"], "disabled", None)
    return Swept(leased.instance_id, leased.lease.owner, row["id"], None if leased.runnable else "disabled")
