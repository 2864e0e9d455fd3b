"""The backlog as a cycle works it off: pending -> processing -> completed, pending again or failed (behaviour 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from room_common.postgres import activity
from room_common.postgres.leases import Backoff, Leased


@dataclass(frozen=True, slots=True)
class Head:
    """An event that may be taken, without its body. ``attempts`` are failed ones."""

    id: UUID
    attempts: int
    verified: bool


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event with everything a prompt says of it. The interpretation prompt is the definition's as it is now.

    ``cycle_id`` is the last cycle that had it before, if one did.
    """

    id: UUID
    attempts: int
    deferrals: int
    source_name: str
    source_type: str
    definition_name: str
    interpretation_prompt: str
    raw_body: bytes = field(repr=False)
    content_type: str | None
    headers: Mapping[str, str] = field(repr=False)
    verified: bool
    traceparent: str | None
    received_at: datetime
    cycle_id: UUID | None


@dataclass(frozen=True, slots=True)
class Returned:
    """Events a cycle gave back as an attempt: how many wait for the next one, and which are out of attempts."""

    pending: int
    failed: tuple[UUID, ...]


async def offerable(leased: Leased, limit: int) -> list[Head]:
    """The room's offerable events, oldest first: pending, due, and of a definition that does not cool down."""
    cursor = await leased.conn.execute(
        """
        select b.id, b.attempts, b.verified
        from event_backlog b join event_definitions d on d.id = b.event_definition_id
        where b.instance_id = %s and b.status = 'pending' and b.next_attempt_at <= now()
          and (d.cooling_until is null or d.cooling_until <= now())
        order by b.received_at, b.id
        limit %s
        """,
        (leased.instance_id, limit),
    )
    return [Head(**row) for row in await cursor.fetchall()]


async def load(leased: Leased, ids: Sequence[UUID]) -> list[PendingEvent]:
    """These events, oldest first. A definition or source that was deleted meanwhile still says what to do."""
    cursor = await leased.conn.execute(
        """
        select b.id, b.attempts, b.deferrals, s.name as source_name, s.source_type, d.name as definition_name,
               d.interpretation_prompt, b.raw_body, b.content_type, b.headers, b.verified, b.traceparent,
               b.received_at, b.cycle_id
        from event_backlog b
        join event_definitions d on d.id = b.event_definition_id
        join event_sources s on s.id = b.source_id
        where b.instance_id = %s and b.id = any(%s)
        order by b.received_at, b.id
        """,
        (leased.instance_id, list(ids)),
    )
    return [PendingEvent(**row) for row in await cursor.fetchall()]


async def take(leased: Leased, cycle_id: UUID, ids: Sequence[UUID]) -> None:
    """Give pending events to a cycle."""
    await leased.conn.execute(
        """
        update event_backlog set status = 'processing', cycle_id = %s
        where instance_id = %s and id = any(%s) and status = 'pending'
        """,
        (cycle_id, leased.instance_id, list(ids)),
    )


async def unmarked(leased: Leased, cycle_id: UUID) -> list[UUID]:
    """The cycle's events that nothing was decided about yet, oldest first."""
    cursor = await leased.conn.execute(
        "select id from event_backlog where cycle_id = %s and status = 'processing' order by received_at, id",
        (cycle_id,),
    )
    return [row["id"] for row in await cursor.fetchall()]


async def complete(leased: Leased, cycle_id: UUID, ids: Sequence[UUID], notes: str | None) -> list[UUID]:
    """Complete events of the cycle; returns those that really changed."""
    cursor = await leased.conn.execute(
        """
        update event_backlog set status = 'completed', completed_at = now(), notes = coalesce(%s, notes)
        where instance_id = %s and cycle_id = %s and id = any(%s) and status = 'processing'
        returning id
        """,
        (notes, leased.instance_id, cycle_id, list(ids)),
    )
    return [row["id"] for row in await cursor.fetchall()]


Deferral = Literal["deferred", "not_ours", "too_often"]


async def defer(leased: Leased, cycle_id: UUID, event_id: UUID, minutes: int, reason: str, limit: int) -> Deferral:
    """Offer an event of the cycle again in ``minutes``, at most ``limit`` times in its life; costs no attempt."""
    where = "instance_id = %(instance)s and cycle_id = %(cycle)s and id = %(id)s and status = 'processing'"
    values = {
        "instance": leased.instance_id,
        "cycle": cycle_id,
        "id": event_id,
        "minutes": minutes,
        "reason": reason,
        "limit": limit,
    }
    cursor = await leased.conn.execute(
        f"""
        update event_backlog
        set status = 'pending', deferrals = deferrals + 1, notes = %(reason)s,
            next_attempt_at = now() + make_interval(mins => %(minutes)s)
        where {where} and deferrals < %(limit)s
        """,
        values,
    )
    if cursor.rowcount:
        return "deferred"
    cursor = await leased.conn.execute(f"select from event_backlog where {where}", values)
    return "too_often" if cursor.rowcount else "not_ours"


async def put_back(leased: Leased, cycle_id: UUID) -> int:
    """The cycle's undecided events are pending again, as if it had never taken them."""
    cursor = await leased.conn.execute(
        "update event_backlog set status = 'pending' where cycle_id = %s and status = 'processing'", (cycle_id,)
    )
    return cursor.rowcount


async def retry(leased: Leased, cycle_id: UUID, backoff: Backoff, note: str) -> Returned:
    """As :func:`put_back`, as one attempt each: offered again after the back-off, or failed, which the log tells."""
    cursor = await leased.conn.execute(
        """
        update event_backlog
        set attempts = attempts + 1, notes = %(note)s,
            status = case when attempts + 1 >= %(limit)s then 'failed' else 'pending' end,
            next_attempt_at = now() + make_interval(secs => least(%(base)s * power(2, least(attempts, 30)), %(cap)s))
        where cycle_id = %(cycle)s and status = 'processing'
        returning id, status
        """,
        {"note": note, "limit": backoff.limit, "base": backoff.base, "cap": backoff.cap, "cycle": cycle_id},
    )
    rows = await cursor.fetchall()
    failed = tuple(row["id"] for row in rows if row["status"] == "failed")
    for event_id in failed:
        await activity.append(
            leased.conn,
            leased.instance_id,
            "event_failed",
            f"event {event_id} failed after {backoff.limit} attempts: {note}",
            severity="error",
            cycle_id=cycle_id,
        )
    return Returned(len(rows) - len(failed), failed)


async def cool(leased: Leased, cycle_id: UUID) -> int:
    """Let the definitions that the cycle completed an event of cool down, and their pending events wait for it."""
    cursor = await leased.conn.execute(
        """
        with cooling as (
            update event_definitions d set cooling_until = now() + make_interval(secs => d.cooldown_seconds)
            where d.cooldown_seconds > 0 and d.id in (
                select event_definition_id from event_backlog
                where instance_id = %(instance)s and cycle_id = %(cycle)s and status = 'completed')
            returning d.id, d.cooling_until
        )
        update event_backlog b set next_attempt_at = c.cooling_until
        from cooling c
        where b.instance_id = %(instance)s and b.event_definition_id = c.id and b.status = 'pending'
          and b.next_attempt_at < c.cooling_until
        """,
        {"instance": leased.instance_id, "cycle": cycle_id},
    )
    return cursor.rowcount
