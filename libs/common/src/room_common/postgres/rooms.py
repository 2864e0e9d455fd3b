"""Rooms: waking them, and finding those that are due (behaviour 8)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal
from uuid import UUID

from psycopg import AsyncConnection

NIL: Final = UUID(int=0)

# Work of a room: an event that may be offered now, or a reply nobody has read. An event of a definition that cools
# down is not offered even if it slipped in with an earlier next_attempt_at.
_HAS_WORK: Final = """
    (exists (select from event_backlog b join event_definitions d on d.id = b.event_definition_id
             where b.instance_id = {instance} and b.status = 'pending' and b.next_attempt_at <= now()
               and (d.cooling_until is null or d.cooling_until <= now()))
     or exists (select from room_inbox x where x.instance_id = {instance} and x.status = 'unread'))
"""


async def wake(
    conn: AsyncConnection[Any],
    instances: Collection[UUID],
    urgent: Collection[UUID] = (),
    *,
    woken_by: str | None = None,
) -> int:
    """Wake rooms for their ticks; returns how many were asleep, or woken earlier than they would have been.

    A room that is already awake keeps its time, which may lie ahead: replies are gathered for a moment. ``urgent`` ones
    (an operator's wish) are awake now. Unknown, disabled, paused and deleted ones are passed over. Rows are locked in
    the order of their ids, as by everything that locks several rooms. ``woken_by`` is the trace context that their next
    cycle is linked to.
    """
    cursor = await conn.execute(
        """
        with ticked as materialized (
            select r.instance_id
            from instance_room r join instances i on i.id = r.instance_id
            where r.instance_id = any(%(all)s) and r.enabled and i.status = 'active' and i.deleted_at is null
              and (r.wake_at is null or (r.wake_at > now() and r.instance_id = any(%(urgent)s)))
            order by r.instance_id
            for no key update of r
        )
        update instance_room r
        set wake_at = case when r.instance_id = any(%(urgent)s) then least(r.wake_at, now())
                           else coalesce(r.wake_at, now()) end,
            woken_by = %(by)s
        from ticked t where r.instance_id = t.instance_id
        """,
        {"all": list({*instances, *urgent}), "urgent": list(urgent), "by": woken_by},
    )
    return cursor.rowcount


async def seconds_to_wake(conn: AsyncConnection[Any]) -> float | None:
    """How long until the next room that sleeps for a moment is awake, in seconds; None when there is none.

    For a worker that found nothing to claim: a reply's room would otherwise wait for its next look, too.
    """
    cursor = await conn.execute(
        """
        select extract(epoch from min(r.wake_at) - clock_timestamp())::float8 as wait from instance_room r
        where r.wake_at > now() and r.lease_owner is null and r.enabled and r.parked_reason is null
          and (r.next_try_at is null or r.next_try_at <= r.wake_at)
        """
    )
    row = await cursor.fetchone()
    return None if row is None or row["wait"] is None else max(0.0, float(row["wait"]))


async def wake_if_work(conn: AsyncConnection[Any], instance_id: UUID) -> bool:
    """Wake a sleeping room that has work. For the look after a release: what came during the cycle waits no tick."""
    cursor = await conn.execute(
        f"""
        update instance_room r set wake_at = now()
        where r.instance_id = %s and r.wake_at is null and r.lease_owner is null and r.enabled
          and {_HAS_WORK.format(instance="r.instance_id")}
        """,
        (instance_id,),
    )
    return cursor.rowcount > 0


RunNow = Literal["woken", "running", "disabled", "parked"]


async def run_now(conn: AsyncConnection[Any], instance_id: UUID) -> RunNow:
    """Wake a room at once, whatever it waits for: an operator's wish. A room that runs looks again by itself."""
    cursor = await conn.execute(
        """
        select r.lease_owner is not null as running, r.parked_reason is not null as parked,
               r.enabled and i.status = 'active' as enabled
        from instance_room r join instances i on i.id = r.instance_id
        where r.instance_id = %s for no key update of r
        """,
        (instance_id,),
    )
    row = await cursor.fetchone()
    if row is None or not row["enabled"]:
        return "disabled"
    if row["parked"]:
        return "parked"
    await conn.execute(
        "update instance_room set wake_at = now(), next_try_at = null where instance_id = %s", (instance_id,)
    )
    return "running" if row["running"] else "woken"


async def unpark(conn: AsyncConnection[Any], instance_id: UUID) -> str | None:
    """Let a parked room run again, its failures forgotten; returns why it was parked, None if it was not."""
    cursor = await conn.execute(
        """
        with parked as (
            select instance_id, parked_reason from instance_room
            where instance_id = %s and parked_reason is not null for no key update
        )
        update instance_room r set parked_reason = null, fails = 0, next_try_at = null, wake_at = now()
        from parked p where r.instance_id = p.instance_id
        returning p.parked_reason
        """,
        (instance_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else row["parked_reason"]


async def due_page(conn: AsyncConnection[Any], after: UUID | None, limit: int) -> list[UUID]:
    """Up to ``limit`` instances whose room wants a tick, with ids above ``after`` and in the order of ids.

    Due: enabled, active, not held by a worker, neither parked nor backing off, and with work. It steps from instance to
    instance through the partial indexes on pending events and unread replies, so its cost follows the rooms that have
    something to do and not the rooms there are; an event whose time has not come costs a look at its index entry.
    Fewer than ``limit`` means that the last page was reached.
    """
    work = _HAS_WORK.format(instance="n.id")
    cursor = await conn.execute(
        f"""
        with recursive walk (id, due, found) as (
            select %(after)s::uuid, false, 0
            union all
            select n.id, d.due, w.found + d.due::int
            from walk w
            cross join lateral (
                select least(
                    (select b.instance_id from event_backlog b
                     where b.status = 'pending' and b.instance_id > w.id and b.next_attempt_at <= now()
                     order by b.instance_id limit 1),
                    (select x.instance_id from room_inbox x
                     where x.status = 'unread' and x.instance_id > w.id order by x.instance_id limit 1)) as id
            ) n
            cross join lateral (
                select exists (
                    select from instance_room r join instances i on i.id = r.instance_id
                    where r.instance_id = n.id and r.enabled and r.lease_owner is null and r.parked_reason is null
                      and (r.next_try_at is null or r.next_try_at <= now())
                      and i.status = 'active' and i.deleted_at is null
                      and {work}) as due
            ) d
            where n.id is not null and w.found < %(limit)s
        )
        select id from walk where due order by id
        """,
        {"after": after or NIL, "limit": limit},
    )
    return [row["id"] for row in await cursor.fetchall()]
