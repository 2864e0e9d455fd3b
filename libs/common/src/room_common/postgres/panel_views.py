"""What the panel shows beside the lists: rooms at one glance, a day's sums, a room's days, a delivery's payloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from room_common.postgres.database import Connection

Row = dict[str, Any]

DAYS = 8
"""Days of activity that are kept one by one; older ones were aged into weeks and months."""


async def room_names(conn: Connection) -> Sequence[Row]:
    """Slug and name of every living room, for choosing one."""
    cursor = await conn.execute("select slug, name from instances where deleted_at is null order by slug limit 500")
    return await cursor.fetchall()


async def rooms(conn: Connection) -> Sequence[Row]:
    """Every living room with what waits, runs and failed in it, and what it may still spend today."""
    cursor = await conn.execute(
        """
        select i.slug, i.name, i.status, r.enabled, r.lease_until > now() as running, r.fails, r.next_try_at,
               r.parked_reason, r.outbound_channel as channel, i.token_budget_daily as budget,
               c.id as cycle_id, c.status as cycle_status, c.started_at as cycle_started_at,
               coalesce((select sum(u.tokens)::bigint from token_usage u
                         where u.instance_id = i.id and u.day = (now() at time zone i.timezone)::date), 0) as used,
               (select count(*) from event_backlog b where b.instance_id = i.id and b.status = 'pending') as pending,
               (select count(*) from event_backlog b where b.instance_id = i.id and b.status = 'processing')
                   as processing,
               (select count(*) from event_backlog b where b.instance_id = i.id and b.status = 'failed') as failed,
               (select count(*) from room_inbox n where n.instance_id = i.id and n.status = 'unread') as unread,
               (select max(d.received_at) from webhook_deliveries d where d.instance_id = i.id) as last_received_at
        from instances i
        join instance_room r on r.instance_id = i.id
        left join lateral (
            select c.id, c.status, c.started_at from room_cycles c
            where c.instance_id = i.id order by c.started_at desc, c.id desc limit 1) c on true
        where i.deleted_at is null order by i.slug
        """
    )
    return await cursor.fetchall()


async def day_sums(conn: Connection) -> Row:
    """The last 24 hours in a few numbers: cycles, events completed, messages sent and not sent, replies, tokens."""
    cursor = await conn.execute(
        """
        with since as materialized (select now() - interval '24 hours' as at)
        select (select count(*) from room_cycles, since where started_at > at) as cycles,
               (select count(*) from room_cycles, since where started_at > at and status in ('failed', 'abandoned'))
                   as cycles_failed,
               (select count(*) from event_backlog, since where status = 'completed' and completed_at > at)
                   as completed,
               (select count(*) from outbound_messages, since where created_at > at and status = 'sent') as sent,
               (select count(*) from outbound_messages, since
                where created_at > at and status in ('failed', 'unknown')) as unsent,
               (select count(*) from room_inbox, since where received_at > at) as replies,
               (select coalesce(sum(tokens), 0)::bigint from token_usage, since
                where day >= (at at time zone 'UTC')::date) as tokens
        """
    )
    row = await cursor.fetchone()
    assert row is not None
    return row


async def activity_days(conn: Connection, instance: UUID) -> Sequence[Row]:
    """The latest days of a room, newest first: how many actions of each kind and severity."""
    cursor = await conn.execute(
        """
        select log_date, kind, severity, sum(event_count)::bigint as actions
        from room_activity_log
        where instance_id = %s and log_type = 'daily' and log_date > (now() at time zone 'UTC')::date - %s
        group by log_date, kind, severity order by log_date desc, actions desc, kind
        """,
        (instance, DAYS),
    )
    return await cursor.fetchall()


async def aged(conn: Connection, instance: UUID, limit: int) -> Sequence[Row]:
    """The weeks and months of a room that its days were aged into, newest first."""
    cursor = await conn.execute(
        """
        select log_date, log_type, severity, content, counts, event_count
        from room_activity_log
        where instance_id = %s and log_type in ('weekly', 'monthly') order by log_date desc, log_type limit %s
        """,
        (instance, limit),
    )
    return await cursor.fetchall()


async def payloads(conn: Connection, delivery: UUID) -> Sequence[Row]:
    """The received bytes of a delivery's items that matched, and what is needed to decode them."""
    cursor = await conn.execute(
        "select item, raw_body, content_type, headers from event_backlog where delivery_id = %s order by item",
        (delivery,),
    )
    return await cursor.fetchall()
