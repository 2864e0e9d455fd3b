"""The lease of a room: who may run its cycle, and write for it (design, the two transactions that decide).

A lease is a row state, not a lock: epoch and owner. Every write of a cycle happens in :func:`lease_transaction`, which
locks the room's row and finds the epoch unchanged, or raises :class:`~room_common.errors.LeaseLost`. The functions that
write take the :class:`Leased` it yields, so that none of them can be called without the check. Taking, finishing,
releasing and sweeping all raise the epoch: a worker that was paused meanwhile can write nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from room_common.errors import LeaseLost
from room_common.postgres.database import Database

CLAIMABLE: Final = """
    r.wake_at <= now() and r.lease_owner is null and r.enabled and r.parked_reason is null
    and (r.next_try_at is null or r.next_try_at <= now()) and i.status = 'active' and i.deleted_at is null
"""
"""When the room ``r`` of the instance ``i`` may be claimed, as SQL."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker holds: the room, the epoch it got, and its own name.

    ``woken_by`` is the trace context of the tick that woke the room, where one did.
    """

    instance_id: UUID
    epoch: int
    owner: str
    woken_by: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Leased:
    """An open transaction that has the room's row locked under a valid lease.

    ``channel`` and ``target`` are where the room's messages go, both None for a room without a channel. ``runnable`` is
    False once the room was disabled, or its instance paused or deleted.
    """

    conn: AsyncConnection[Any]
    lease: Lease
    channel: str | None
    target: str | None
    runnable: bool

    @property
    def instance_id(self) -> UUID:
        """The room's instance."""
        return self.lease.instance_id


@dataclass(frozen=True, slots=True)
class Backoff:
    """How work that failed is tried again: ``base`` seconds, doubled each time up to ``cap``, given up at ``limit``."""

    base: float = 30.0
    cap: float = 1800.0
    limit: int = 5


@dataclass(frozen=True, slots=True)
class Renewal:
    """What one renewal found. A lease in neither is lost. ``busy``: still ours, but its row was locked just now."""

    renewed: frozenset[Lease]
    busy: frozenset[Lease]


@asynccontextmanager
async def lease_transaction(db: Database, lease: Lease) -> AsyncIterator[Leased]:
    """A transaction in which ``lease`` is known to hold until it commits.

    Raises ``LeaseLost`` when it does not, and ``DependencyUnavailable`` when PostgreSQL is away, or when the answer to
    the commit was lost: the caller has to look before it writes the same again.
    """
    async with db.transaction() as conn:
        cursor = await conn.execute(
            """
            select r.outbound_channel, r.outbound_target,
                   r.enabled and i.status = 'active' and i.deleted_at is null as runnable
            from instance_room r join instances i on i.id = r.instance_id
            where r.instance_id = %s and r.lease_epoch = %s and r.lease_owner = %s
            for no key update of r
            """,
            (lease.instance_id, lease.epoch, lease.owner),
        )
        row = await cursor.fetchone()
        if row is None:
            raise LeaseLost(f"epoch {lease.epoch} is over")
        yield Leased(conn, lease, row["outbound_channel"], row["outbound_target"], row["runnable"])


async def claim(conn: AsyncConnection[Any], owner: str, seconds: float) -> Lease | None:
    """As :func:`claim_many` with one room; None when there is none."""
    return next(iter(await claim_many(conn, owner, seconds, 1)), None)


async def claim_many(conn: AsyncConnection[Any], owner: str, seconds: float, limit: int) -> list[Lease]:
    """Take up to ``limit`` rooms, those that have been awake longest of all that nobody holds.

    Their leases end in ``seconds``.
    """
    cursor = await conn.execute(
        f"""
        with chosen as materialized (
            select r.instance_id, r.woken_by
            from instance_room r join instances i on i.id = r.instance_id
            where {CLAIMABLE}
            order by r.wake_at
            limit %s
            for no key update of r skip locked
        )
        update instance_room r
        set lease_epoch = r.lease_epoch + 1, lease_owner = %s, lease_until = now() + make_interval(secs => %s),
            leased_at = now(), wake_at = null, woken_by = null
        from chosen c
        where r.instance_id = c.instance_id
        returning r.instance_id, r.lease_epoch, c.woken_by
        """,
        (limit, owner, seconds),
    )
    return [Lease(row["instance_id"], row["lease_epoch"], owner, row["woken_by"]) for row in await cursor.fetchall()]


def renew(conn: psycopg.Connection[Any], owner: str, leases: Sequence[Lease], seconds: float) -> Renewal:
    """Let all ``leases`` of ``owner`` end ``seconds`` from now, in one statement that waits for no row.

    A row that somebody has locked is left for the next time, so that one room's long transaction does not cost the
    others their leases. Synchronous: it runs in the thread that keeps leases, which a busy event loop must not delay.
    """
    rows = conn.execute(
        """
        with mine as materialized (
            select * from unnest(%(ids)s::uuid[], %(epochs)s::bigint[]) as m (instance_id, epoch)
        ), free as materialized (
            select r.instance_id
            from instance_room r join mine m on m.instance_id = r.instance_id and m.epoch = r.lease_epoch
            where r.lease_owner = %(owner)s
            order by r.instance_id
            for no key update of r skip locked
        ), renewed as (
            update instance_room r set lease_until = now() + make_interval(secs => %(seconds)s)
            from free f where r.instance_id = f.instance_id
            returning r.instance_id
        )
        select r.instance_id, r.lease_epoch, n.instance_id is not null as renewed
        from instance_room r join mine m on m.instance_id = r.instance_id and m.epoch = r.lease_epoch
        left join renewed n on n.instance_id = r.instance_id
        where r.lease_owner = %(owner)s
        """,
        {
            "ids": [lease.instance_id for lease in leases],
            "epochs": [lease.epoch for lease in leases],
            "owner": owner,
            "seconds": seconds,
        },
    ).fetchall()
    found = {Lease(row["instance_id"], row["lease_epoch"], owner): row["renewed"] for row in rows}
    return Renewal(
        renewed=frozenset(lease for lease, renewed in found.items() if renewed),
        busy=frozenset(lease for lease, renewed in found.items() if not renewed),
    )


async def release(leased: Leased, *, wake: bool = False, last_cycle_id: UUID | None = None) -> None:
    """Give the room back, the last write of a transaction. ``wake``: let it be claimed again at once."""
    await leased.conn.execute(
        """
        update instance_room
        set lease_epoch = lease_epoch + 1, lease_owner = null, lease_until = null, leased_at = null,
            wake_at = case when %(wake)s then coalesce(wake_at, now()) else wake_at end,
            last_cycle_id = coalesce(%(cycle)s, last_cycle_id), updated_at = now()
        where instance_id = %(instance)s
        """,
        {"wake": wake, "cycle": last_cycle_id, "instance": leased.instance_id},
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """A room's failures in a row, and whether it has just been parked for them."""

    fails: int
    parked: bool


async def succeed(leased: Leased) -> None:
    """A cycle went well: failures are forgotten."""
    await leased.conn.execute(
        "update instance_room set fails = 0, next_try_at = null where instance_id = %s", (leased.instance_id,)
    )


async def fail(leased: Leased, reason: str, backoff: Backoff) -> Standing:
    """A cycle failed by its own fault: the next one waits, and at ``backoff.limit`` in a row the room is parked."""
    cursor = await leased.conn.execute(
        """
        update instance_room
        set fails = fails + 1,
            next_try_at = now() + make_interval(secs => least(%(base)s * power(2, least(fails, 30)), %(cap)s)),
            parked_reason = case when fails + 1 >= %(limit)s then %(reason)s else parked_reason end
        where instance_id = %(instance)s
        returning fails, parked_reason is not null as parked
        """,
        {
            "base": backoff.base,
            "cap": backoff.cap,
            "limit": backoff.limit,
            "reason": reason,
            "instance": leased.instance_id,
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    return Standing(row["fails"], row["parked"])


_EPOCHS_LOST = 1000
"""More claims of one room than a failover can have forgotten."""


async def fence_all(conn: AsyncConnection[Any]) -> int:
    """Take every room from whoever holds it, with an epoch that nobody can have had; returns how many were held.

    For after a failover that lost commits: a forgotten grant of a lease would be given a second time. Cycles under way
    are resumed from what is recorded.
    """
    cursor = await conn.execute(
        """
        with every as materialized (
            select instance_id, lease_owner from instance_room order by instance_id for no key update
        ), fenced as (
            update instance_room r
            set lease_epoch = r.lease_epoch + %(epochs)s, lease_owner = null, lease_until = null, leased_at = null,
                wake_at = case when e.lease_owner is null then r.wake_at else coalesce(r.wake_at, now()) end
            from every e where r.instance_id = e.instance_id
            returning e.lease_owner
        )
        select count(lease_owner) as held from fenced
        """,
        {"epochs": _EPOCHS_LOST},
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row["held"])


async def sleep_until(leased: Leased, moment: datetime) -> None:
    """Let the room rest until ``moment``, whatever wakes it."""
    await leased.conn.execute(
        "update instance_room set next_try_at = %s where instance_id = %s", (moment, leased.instance_id)
    )


async def seize_expired(conn: AsyncConnection[Any]) -> Leased | None:
    """Take one room whose lease ran out away from its worker, enabled or not; None when there is none.

    The room is free and awake once the transaction commits; until then the caller settles what the dead cycle held.
    """
    cursor = await conn.execute(
        """
        with expired as materialized (
            select instance_id, lease_owner, lease_until, leased_at from instance_room
            where lease_until < now()
            order by lease_until limit 1
            for no key update skip locked
        ), charged as (
            update room_cycles c
            set used_seconds = used_seconds + coalesce(extract(epoch from e.lease_until - e.leased_at), 0)
            from expired e where c.instance_id = e.instance_id and c.status = 'running'
        )
        update instance_room r
        set lease_epoch = r.lease_epoch + 1, lease_owner = null, lease_until = null, leased_at = null,
            wake_at = coalesce(r.wake_at, now()), updated_at = now()
        from expired e, instances i
        where r.instance_id = e.instance_id and i.id = r.instance_id
        returning r.instance_id, r.lease_epoch, e.lease_owner, r.outbound_channel, r.outbound_target,
                  r.enabled and i.status = 'active' and i.deleted_at is null as runnable
        """
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return _seized(conn, row)


async def seize_stray(conn: AsyncConnection[Any]) -> Leased | None:
    """Take one room that nobody holds though a cycle of it runs, and that cannot be claimed; None: there is none.

    That is a room that was disabled after its cycle was released, or one that nothing wakes. A runnable one is awake
    once the transaction commits.
    """
    cursor = await conn.execute(
        """
        with stray as materialized (
            select r.instance_id, c.worker as lease_owner
            from room_cycles c
            join instance_room r on r.instance_id = c.instance_id
            join instances i on i.id = r.instance_id
            where c.status = 'running' and r.lease_owner is null
              and (r.wake_at is null or not r.enabled or i.status <> 'active' or i.deleted_at is not null)
            limit 1
            for no key update of r skip locked
        )
        update instance_room r
        set lease_epoch = r.lease_epoch + 1, wake_at = coalesce(r.wake_at, now()), updated_at = now()
        from stray e, instances i
        where r.instance_id = e.instance_id and i.id = r.instance_id
        returning r.instance_id, r.lease_epoch, e.lease_owner, r.outbound_channel, r.outbound_target,
                  r.enabled and i.status = 'active' and i.deleted_at is null as runnable
        """
    )
    row = await cursor.fetchone()
    return None if row is None else _seized(conn, row)


def _seized(conn: AsyncConnection[Any], row: Mapping[str, Any]) -> Leased:
    lease = Lease(row["instance_id"], row["lease_epoch"], row["lease_owner"])
    return Leased(conn, lease, row["outbound_channel"], row["outbound_target"], row["runnable"])
