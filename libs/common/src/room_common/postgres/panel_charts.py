"""What the panel draws: volume, latency and tokens over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from room_common.postgres.database import Connection

Row = dict[str, Any]

SAMPLE: Final = 20_000
"""The latest rows that a latency is told from."""
DAYS: Final = 14
"""Days of tokens that are drawn."""


async def volume(conn: Connection, instance: UUID | None, *, slots: int, slot_seconds: int) -> Sequence[Row]:
    """Deliveries by slot and outcome. Slot 0 ends now; slots without any are left out."""
    cursor = await conn.execute(
        """
        select floor(extract(epoch from now() - received_at) / %(seconds)s)::integer as slot, outcome,
               count(*) as items
        from webhook_deliveries
        where received_at > now() - make_interval(secs => %(seconds)s::integer * %(slots)s::integer)
          and received_at <= now()
          and (%(instance)s::uuid is null or instance_id = %(instance)s)
        group by 1, 2
        """,
        {"instance": instance, "slots": slots, "seconds": slot_seconds},
    )
    return await cursor.fetchall()


async def deciding(conn: Connection, instance: UUID | None, *, slots: int, slot_seconds: int) -> Sequence[Row]:
    """Seconds from a delivery's receipt to its outcome by slot: half of them, and 95 of 100, took no longer."""
    cursor = await conn.execute(
        """
        select floor(extract(epoch from now() - received_at) / %(seconds)s)::integer as slot, count(*) as items,
               percentile_cont(array[0.5, 0.95]) within group
                   (order by greatest(0, extract(epoch from decided_at - received_at))::float8) as seconds
        from (select received_at, decided_at from webhook_deliveries
              where received_at > now() - make_interval(secs => %(seconds)s::integer * %(slots)s::integer)
                and received_at <= now()
                and (%(instance)s::uuid is null or instance_id = %(instance)s) and replay_of is null
              order by received_at desc limit %(sample)s) latest
        group by 1
        """,
        {"instance": instance, "slots": slots, "seconds": slot_seconds, "sample": SAMPLE},
    )
    return await cursor.fetchall()


async def telling(conn: Connection, instance: UUID | None, *, slots: int, slot_seconds: int) -> Sequence[Row]:
    """Seconds from the receipt of a cycle's first event to its first message's arrival, by slot, as above."""
    cursor = await conn.execute(
        """
        with sent as (
            select m.cycle_id, min(m.sent_at) as sent_at from outbound_messages m
            where m.created_at > now() - make_interval(secs => %(seconds)s::integer * %(slots)s::integer)
              and m.sent_at is not null
              and m.cycle_id is not null and (%(instance)s::uuid is null or m.instance_id = %(instance)s)
            group by m.cycle_id order by min(m.sent_at) desc limit %(sample)s
        ), told as (
            select s.sent_at, min(b.received_at) as received_at
            from sent s join room_cycles c on c.id = s.cycle_id
            join event_backlog b on b.cycle_id = s.cycle_id and b.instance_id = c.instance_id
            group by s.cycle_id, s.sent_at
        )
        select floor(extract(epoch from now() - sent_at) / %(seconds)s)::integer as slot, count(*) as items,
               percentile_cont(array[0.5, 0.95]) within group
                   (order by greatest(0, extract(epoch from sent_at - received_at))::float8) as seconds
        from told where sent_at <= now() group by 1
        """,
        {"instance": instance, "slots": slots, "seconds": slot_seconds, "sample": SAMPLE},
    )
    return await cursor.fetchall()


async def tokens(conn: Connection, instance: UUID | None) -> Sequence[Row]:
    """Tokens by day and tier; ``days_ago`` is 0 today in UTC (an instance counts the days of its own timezone)."""
    cursor = await conn.execute(
        """
        select greatest((now() at time zone 'UTC')::date - day, 0) as days_ago, tier, sum(tokens)::bigint as tokens
        from token_usage
        where day > (now() at time zone 'UTC')::date - %(days)s
          and (%(instance)s::uuid is null or instance_id = %(instance)s)
        group by 1, 2
        """,
        {"instance": instance, "days": DAYS},
    )
    return await cursor.fetchall()
