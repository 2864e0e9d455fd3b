"""Human replies on their way into a room's inbox (behaviour, outbound and replies)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from room_common.identity import new_id
from room_common.postgres import activity
from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ReplyChannel:
    """The channel behind a channel token, and the room it belongs to. ``config`` and ``token_encrypted`` are sealed."""

    id: UUID
    instance_id: UUID
    channel_type: str
    enabled: bool
    room_exists: bool
    room_enabled: bool
    outbound_channel: str | None
    outbound_target: str | None
    config: bytes | None = field(repr=False)
    token_encrypted: bytes = field(repr=False)


async def find_channel(conn: Connection, token_sha256: bytes, received_at: datetime) -> ReplyChannel | None:
    """The channel whose token was valid when the reply was received, or None."""
    cursor = await conn.execute(
        """
        select c.id, c.instance_id, c.channel_type, c.enabled,
               (i.deleted_at is null and r.instance_id is not null) as room_exists,
               (i.status = 'active' and coalesce(r.enabled, false)) as room_enabled,
               r.outbound_channel, r.outbound_target, c.config, t.token_encrypted
        from source_tokens t
        join instance_channels c on c.id = t.channel_id
        join instances i on i.id = c.instance_id
        left join instance_room r on r.instance_id = c.instance_id
        where t.token_sha256 = %s and (t.valid_until is null or t.valid_until > %s)
        """,
        (token_sha256, received_at),
    )
    row = await cursor.fetchone()
    return None if row is None else ReplyChannel(**row)


async def put(
    conn: Connection,
    channel: ReplyChannel,
    *,
    sender: str,
    text: str,
    dedup_key: str,
    reason: str | None,
    received_at: datetime,
    traceparent: str | None,
) -> bool:
    """Record a reply: unread, or ignored for ``reason``. False when this reply was recorded before."""
    cursor = await conn.execute(
        """
        insert into room_inbox
            (id, instance_id, channel, sender, text, dedup_key, status, reason, received_at, traceparent)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        on conflict (dedup_key) do nothing
        """,
        (
            new_id(),
            channel.instance_id,
            channel.channel_type,
            sender,
            text,
            dedup_key,
            "unread" if reason is None else "ignored",
            reason,
            received_at,
            traceparent,
        ),
    )
    if cursor.rowcount == 0:
        return False
    if reason is None:
        await activity.append(conn, channel.instance_id, "reply_received", f"reply received on {channel.channel_type}")
    return True


async def wake(conn: Connection, instance_id: UUID, delay_seconds: float) -> datetime:
    """Make the room claimable after a short wait, so that a second reply joins the first. Returns the database's time.

    An earlier wake-up stays as it is: further replies within the wait change nothing.
    """
    await conn.execute(
        """
        update instance_room set wake_at = now() + make_interval(secs => %s)
        where instance_id = %s and (wake_at is null or wake_at > now() + make_interval(secs => %s))
        """,
        (delay_seconds, instance_id, delay_seconds),
    )
    cursor = await conn.execute("select now() as now")
    row = await cursor.fetchone()
    assert row is not None
    now: datetime = row["now"]
    return now
