"""The activity log: one row per notable action of a room (behaviour, activity log)."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from room_common.identity import new_id
from room_common.postgres.database import Connection

ActivityKind = Literal[
    "event_matched",
    "event_failed",
    "cycle_started",
    "cycle_finished",
    "cycle_failed",
    "cycle_abandoned",
    "tool_called",
    "message_sent",
    "message_failed",
    "reply_received",
    "reply_failed",
    "budget_exhausted",
    "room_parked",
    "error",
]
Severity = Literal["info", "warning", "error"]


async def append(
    conn: Connection,
    instance_id: UUID,
    kind: ActivityKind,
    content: str,
    *,
    severity: Severity = "info",
    cycle_id: UUID | None = None,
    counts: dict[str, int] | None = None,
) -> None:
    """Add one daily row, dated by the database's clock in UTC. ``content`` is for people, never payload text."""
    await conn.execute(
        """
        insert into room_activity_log (id, instance_id, log_date, kind, severity, content, counts, cycle_id)
        values (%s, %s, (now() at time zone 'UTC')::date, %s, %s, %s, %s, %s)
        """,
        (new_id(), instance_id, kind, severity, content, Jsonb(counts or {kind: 1}), cycle_id),
    )
