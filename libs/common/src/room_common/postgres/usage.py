"""Token usage per instance, day and tier, and the daily budget (behaviour, the cycle, 4).

A day is the calendar day in the instance's timezone, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from room_common.postgres.database import Connection

Tier = Literal["fast", "standard"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What an instance has used today. ``limit`` is None without a budget; ``midnight`` is when the next day starts."""

    used: int
    limit: int | None
    midnight: datetime

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be spent today."""
        return self.limit is not None and self.used >= self.limit


async def add(conn: Connection, instance_id: UUID, tier: Tier, tokens: int) -> None:
    """Count tokens of one or more calls; nothing happens for 0."""
    if tokens <= 0:
        return
    await conn.execute(
        """
        insert into token_usage (instance_id, day, tier, tokens)
        select id, (now() at time zone timezone)::date, %(tier)s, %(tokens)s from instances where id = %(instance)s
        on conflict (instance_id, day, tier) do update set tokens = token_usage.tokens + excluded.tokens
        """,
        {"instance": instance_id, "tier": tier, "tokens": tokens},
    )


async def today(conn: Connection, instance_id: UUID) -> Budget | None:
    """Today's usage and budget, or None when there is no such instance."""
    cursor = await conn.execute(
        """
        select coalesce((select sum(u.tokens)::bigint from token_usage u
                         where u.instance_id = i.id and u.day = (now() at time zone i.timezone)::date), 0) as used,
               i.token_budget_daily as budget,
               (((now() at time zone i.timezone)::date + 1)::timestamp at time zone i.timezone) as midnight
        from instances i where i.id = %s
        """,
        (instance_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else Budget(row["used"], row["budget"], row["midnight"])


async def exhausted(conn: Connection, instance_ids: Sequence[UUID]) -> set[UUID]:
    """Those of ``instance_ids`` whose budget of today is used up."""
    cursor = await conn.execute(
        """
        select i.id from instances i
        where i.id = any(%s) and i.token_budget_daily <= coalesce(
            (select sum(u.tokens) from token_usage u
             where u.instance_id = i.id and u.day = (now() at time zone i.timezone)::date), 0)
        """,
        (list(instance_ids),),
    )
    return {row["id"] for row in await cursor.fetchall()}
