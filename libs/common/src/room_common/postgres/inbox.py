"""Replies of people as a cycle reads them: unread -> taken -> read, or unread again (behaviour 8 and 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from room_common.postgres import activity
from room_common.postgres.leases import Leased


@dataclass(frozen=True, slots=True)
class Reply:
    """One message of a person. ``cycle_id`` is the last cycle that had it before, if one did."""

    id: UUID
    channel: str
    sender: str
    text: str = field(repr=False)
    traceparent: str | None
    received_at: datetime
    cycle_id: UUID | None


async def unread(leased: Leased, limit: int) -> list[Reply]:
    """The oldest unread replies of the room."""
    cursor = await leased.conn.execute(
        """
        select id, channel, sender, text, traceparent, received_at, cycle_id from room_inbox
        where instance_id = %s and status = 'unread' order by received_at, id limit %s
        """,
        (leased.instance_id, limit),
    )
    return [Reply(**row) for row in await cursor.fetchall()]


async def take(leased: Leased, cycle_id: UUID, ids: Sequence[UUID]) -> None:
    """Give replies to a cycle."""
    await leased.conn.execute(
        """
        update room_inbox set status = 'taken', cycle_id = %s
        where instance_id = %s and id = any(%s) and status = 'unread'
        """,
        (cycle_id, leased.instance_id, list(ids)),
    )


async def mark_read(leased: Leased, cycle_id: UUID) -> int:
    """The cycle has dealt with its replies."""
    cursor = await leased.conn.execute(
        "update room_inbox set status = 'read', read_at = now() where cycle_id = %s and status = 'taken'", (cycle_id,)
    )
    return cursor.rowcount


async def put_back(leased: Leased, cycle_id: UUID) -> int:
    """The cycle's replies are unread again, as if it had never seen them."""
    cursor = await leased.conn.execute(
        "update room_inbox set status = 'unread' where cycle_id = %s and status = 'taken'", (cycle_id,)
    )
    return cursor.rowcount


async def retry(leased: Leased, cycle_id: UUID, limit: int) -> int:
    """As :func:`put_back`, as one attempt; after ``limit`` of them a reply is failed, which an operator is shown.

    Returns how many failed now.
    """
    cursor = await leased.conn.execute(
        """
        update room_inbox
        set attempts = attempts + 1, status = case when attempts + 1 >= %(limit)s then 'failed' else 'unread' end
        where cycle_id = %(cycle)s and status = 'taken'
        returning status
        """,
        {"cycle": cycle_id, "limit": limit},
    )
    failed: int = sum(row["status"] == "failed" for row in await cursor.fetchall())
    if failed:
        await activity.append(
            leased.conn,
            leased.instance_id,
            "reply_failed",
            f"{failed} human message(s) given up after {limit} attempts",
            severity="error",
            cycle_id=cycle_id,
            counts={"reply_failed": failed},
        )
    return failed
