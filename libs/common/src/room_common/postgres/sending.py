"""The outbox as the delivering side sees it: claim, settle, what is due (behaviour, outbound and replies).

The row decides. States go queued -> published -> sending -> sent | failed | unknown, and back from sending to
published for another try. A row is claimable when it is due, no earlier row of the same target is open, and nobody
holds it. Every settlement names the attempt it belongs to, so a delivery that was paused past its lease settles
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from room_common.postgres import activity
from room_common.postgres.database import Connection

_NO_EARLIER = """
    not exists (
        select from outbound_messages e
        where e.instance_id = m.instance_id and e.channel = m.channel and e.target = m.target and e.seq < m.seq
          and e.status in ('queued', 'published', 'sending'))
"""


_CHANNEL = "instance_channels c where c.instance_id = m.instance_id and c.channel_type = m.channel"

_ONCE_ONLY = """
    exists (
        select from instance_channels c
        where c.instance_id = m.instance_id and c.channel_type = m.channel and c.delivery = 'at_most_once')
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that this process may deliver now. ``attempt`` counts from 1 and fences the settlement.

    ``parts_sent`` parts of the text were accepted by earlier attempts. ``once_only``: what may have been accepted is
    never sent again. ``channel_id`` and ``config`` (encrypted) are None where the instance has no such channel.
    """

    id: UUID
    instance_id: UUID
    slug: str
    cycle_id: UUID | None
    channel: str
    target: str
    text: str = field(repr=False)
    attempt: int
    parts_sent: int
    once_only: bool
    channel_id: UUID | None
    config: bytes | None = field(repr=False)
    created_at: datetime
    traceparent: str | None


async def claim(conn: Connection, message_id: UUID, owner: str, lease_seconds: float) -> Claimed | None:
    """Take one row for delivery, or None when it is missing, settled, held, not due, or behind an open one.

    A row whose lease has run out is taken again only on ``at_least_once`` channels; see :func:`expire_once_only`.
    """
    cursor = await conn.execute(
        f"""
        update outbound_messages m
        set status = 'sending', attempts = m.attempts + 1, lease_owner = %(owner)s,
            lease_until = now() + make_interval(secs => %(lease)s)
        from instances i
        where m.id = %(id)s and i.id = m.instance_id and {_NO_EARLIER}
          and ((m.status in ('queued', 'published') and m.next_attempt_at <= now())
               or (m.status = 'sending' and m.lease_until < now() and not {_ONCE_ONLY}))
        returning (select c.id from {_CHANNEL}) as channel_id, (select c.config from {_CHANNEL}) as config,
                  m.id, m.instance_id, i.slug, m.cycle_id, m.channel, m.target, m.text, m.attempts as attempt,
                  m.parts_sent, {_ONCE_ONLY} as once_only, m.created_at, m.traceparent
        """,
        {"id": message_id, "owner": owner, "lease": lease_seconds},
    )
    row = await cursor.fetchone()
    return None if row is None else Claimed(**row)


async def advance(conn: Connection, claimed: Claimed, owner: str, parts_sent: int, lease_seconds: float) -> bool:
    """Record that the provider accepted the first ``parts_sent`` parts, and renew the lease for the next one.

    False when the row went on without this attempt: nothing more may be sent.
    """
    cursor = await conn.execute(
        f"""
        update outbound_messages m
        set parts_sent = %(parts)s, lease_until = now() + make_interval(secs => %(lease)s)
        where {_MINE}
        """,
        {**_mine(claimed, owner), "parts": parts_sent, "lease": lease_seconds},
    )
    return cursor.rowcount == 1


async def settle_sent(conn: Connection, claimed: Claimed, owner: str, provider_message_id: str) -> float | None:
    """Record the provider's acceptance. Returns seconds since the message was queued; None when the row went on
    without this attempt.
    """
    cursor = await conn.execute(
        f"""
        update outbound_messages m
        set lease_owner = null, lease_until = null, status = 'sent', sent_at = now(), error = null,
            provider_message_id = %(value)s
        where {_MINE}
        returning extract(epoch from now() - m.created_at)::float8 as age
        """,
        {**_mine(claimed, owner), "value": provider_message_id},
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    await activity.append(
        conn, claimed.instance_id, "message_sent", f"message sent on {claimed.channel}", cycle_id=claimed.cycle_id
    )
    return float(row["age"])


async def settle_retry(conn: Connection, claimed: Claimed, owner: str, error: str, delay_seconds: float) -> bool:
    """Give the row back for another try after ``delay_seconds``. ``error``: a bounded kind, no provider's text."""
    return await _settle(
        conn,
        claimed,
        owner,
        "status = 'published', error = %(value)s, next_attempt_at = now() + make_interval(secs => %(delay)s)",
        error,
        delay_seconds,
    )


async def settle_failed(conn: Connection, claimed: Claimed, owner: str, error: str) -> bool:
    """Close the row for good; an operator sees it."""
    if not await _settle(conn, claimed, owner, "status = 'failed', error = %(value)s", error):
        return False
    await activity.append(
        conn,
        claimed.instance_id,
        "message_failed",
        f"message on {claimed.channel} failed: {error}",
        severity="error",
        cycle_id=claimed.cycle_id,
    )
    return True


async def postpone(conn: Connection, claimed: Claimed, owner: str, error: str, delay_seconds: float) -> bool:
    """Give back a row whose provider was not called, until after ``delay_seconds``: this attempt does not count."""
    return await _settle(
        conn,
        claimed,
        owner,
        "status = 'published', attempts = m.attempts - 1, error = %(value)s,"
        " next_attempt_at = now() + make_interval(secs => %(delay)s)",
        error,
        delay_seconds,
    )


async def settle_unknown(conn: Connection, claimed: Claimed, owner: str, error: str) -> bool:
    """The provider may or may not have accepted the message, and the channel wants nothing twice: close the row."""
    if not await _settle(conn, claimed, owner, "status = 'unknown', error = %(value)s", error):
        return False
    await _append_unknown(conn, claimed.instance_id, claimed.channel, claimed.cycle_id)
    return True


async def expire_once_only(conn: Connection) -> Sequence[UUID]:
    """Rows of ``at_most_once`` channels whose delivery was cut off become ``unknown``; returns their ids."""
    cursor = await conn.execute(
        f"""
        with lost as (
            update outbound_messages m
            set status = 'unknown', lease_owner = null, lease_until = null, error = 'interrupted'
            where m.status = 'sending' and m.lease_until < now() and {_ONCE_ONLY}
            returning m.id, m.instance_id, m.channel, m.cycle_id)
        select * from lost
        """
    )
    rows = await cursor.fetchall()
    for row in rows:
        await _append_unknown(conn, row["instance_id"], row["channel"], row["cycle_id"])
    return [row["id"] for row in rows]


async def _append_unknown(conn: Connection, instance_id: UUID, channel: str, cycle_id: UUID | None) -> None:
    await activity.append(
        conn,
        instance_id,
        "message_failed",
        f"a message on {channel} may or may not have been sent; it is not sent again",
        severity="error",
        cycle_id=cycle_id,
    )


async def resend(conn: Connection, message_id: UUID) -> UUID | None:
    """Queue a failed or unknown message again, behind what its target has waiting. Returns its instance, else None.

    Parts that were accepted are not sent again. The room's row is locked first, as by everything that numbers messages.
    """
    cursor = await conn.execute("select instance_id from outbound_messages where id = %s", (message_id,))
    row = await cursor.fetchone()
    if row is None:
        return None
    await conn.execute("select from instance_room where instance_id = %s for no key update", (row["instance_id"],))
    cursor = await conn.execute(
        """
        update outbound_messages m
        set status = 'queued', attempts = 0, error = null, next_attempt_at = now(), published_at = null,
            dead_lettered_at = null,
            seq = (select max(l.seq) + 1 from outbound_messages l
                   where l.instance_id = m.instance_id and l.channel = m.channel and l.target = m.target)
        where m.id = %s and m.status in ('failed', 'unknown')
        returning m.instance_id
        """,
        (message_id,),
    )
    found = await cursor.fetchone()
    return None if found is None else found["instance_id"]


@dataclass(frozen=True, slots=True)
class Unburied:
    """A failed row that has no dead letter yet. ``error`` is a bounded kind."""

    id: UUID
    instance_id: UUID
    cycle_id: UUID | None
    channel: str
    target: str
    text: str
    error: str
    attempts: int
    traceparent: str | None
    created_at: datetime


async def unburied(conn: Connection, limit: int) -> Sequence[Unburied]:
    """Failed rows without a dead letter, locked until the transaction ends; those of another process are left out."""
    cursor = await conn.execute(
        """
        select id, instance_id, cycle_id, channel, target, text, coalesce(error, 'unknown') as error, attempts,
               traceparent, created_at
        from outbound_messages
        where status = 'failed' and dead_lettered_at is null
        order by created_at limit %s
        for no key update skip locked
        """,
        (limit,),
    )
    return [Unburied(**row) for row in await cursor.fetchall()]


async def mark_buried(conn: Connection, ids: Sequence[UUID]) -> None:
    """Remember that these rows have their dead letters."""
    await conn.execute("update outbound_messages set dead_lettered_at = now() where id = any(%s)", (list(ids),))


async def due(conn: Connection, limit: int) -> Sequence[UUID]:
    """Ids of rows that are due or whose delivery was cut off, first come first; only the first open one of a target."""
    cursor = await conn.execute(
        f"""
        select m.id from outbound_messages m
        where {_NO_EARLIER}
          and ((m.status = 'published' and m.next_attempt_at <= now())
               or (m.status = 'sending' and m.lease_until < now() and m.next_attempt_at <= now() and not {_ONCE_ONLY}))
        order by m.next_attempt_at
        limit %s
        """,
        (limit,),
    )
    return [row["id"] for row in await cursor.fetchall()]


async def next_of_target(conn: Connection, claimed: Claimed) -> UUID | None:
    """The next open row of the same target, which the settled one held back."""
    cursor = await conn.execute(
        """
        select id from outbound_messages
        where instance_id = %s and channel = %s and target = %s and status in ('queued', 'published', 'sending')
        order by seq limit 1
        """,
        (claimed.instance_id, claimed.channel, claimed.target),
    )
    row = await cursor.fetchone()
    return None if row is None else row["id"]


_MINE = "m.id = %(id)s and m.status = 'sending' and m.lease_owner = %(owner)s and m.attempts = %(attempt)s"


def _mine(claimed: Claimed, owner: str) -> dict[str, object]:
    return {"id": claimed.id, "owner": owner, "attempt": claimed.attempt}


async def _settle(
    conn: Connection, claimed: Claimed, owner: str, change: str, value: str | None, delay: float = 0.0
) -> bool:
    cursor = await conn.execute(
        f"update outbound_messages m set lease_owner = null, lease_until = null, {change} where {_MINE}",
        {**_mine(claimed, owner), "value": value, "delay": delay},
    )
    return cursor.rowcount == 1
