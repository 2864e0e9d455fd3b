"""What happened since a time, counted."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from room_common.postgres.database import Connection

_STATS: Final = {
    "events": """
        select status, count(*) as n from event_backlog
        where matched_at >= %(since)s and (%(instance)s::uuid is null or instance_id = %(instance)s) group by status
    """,
    "messages": """
        select status, count(*) as n from outbound_messages
        where created_at >= %(since)s and (%(instance)s::uuid is null or instance_id = %(instance)s) group by status
    """,
    "cycles": """
        select status, count(*) as n from room_cycles
        where started_at >= %(since)s and (%(instance)s::uuid is null or instance_id = %(instance)s) group by status
    """,
    "replies": """
        select status, count(*) as n from room_inbox
        where received_at >= %(since)s and (%(instance)s::uuid is null or instance_id = %(instance)s) group by status
    """,
}


async def stats(conn: Connection, instance: UUID | None, since: datetime | None) -> dict[str, Any]:
    """Counts since a time: deliveries by outcome with their calls and tokens, messages and events by status, cycles.

    None is a day ago.
    """
    if since is None:
        clock = await conn.execute("select now() - interval '1 day' as since")
        row = await clock.fetchone()
        since = None if row is None else row["since"]
    scope = {"instance": instance, "since": since}
    outcomes = await conn.execute(
        """
        select outcome, count(*) as items, sum(llm_calls)::bigint as llm_calls, sum(tokens)::bigint as tokens
        from webhook_deliveries
        where received_at >= %(since)s and (%(instance)s::uuid is null or instance_id = %(instance)s)
        group by outcome order by outcome
        """,
        scope,
    )
    result: dict[str, Any] = {
        "since": since,
        "outcomes": {row.pop("outcome"): row for row in await outcomes.fetchall()},
    }
    for name, statement in _STATS.items():
        cursor = await conn.execute(statement, scope)
        result[name] = {row["status"]: row["n"] for row in await cursor.fetchall()}
    tokens = await conn.execute(
        """
        select tier, sum(tokens)::bigint as tokens from token_usage
        where day >= (%(since)s::timestamptz at time zone 'UTC')::date
          and (%(instance)s::uuid is null or instance_id = %(instance)s)
        group by tier
        """,
        scope,
    )
    result["tokens"] = {row["tier"]: row["tokens"] for row in await tokens.fetchall()}
    return result
