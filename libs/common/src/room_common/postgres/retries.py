"""What an operator does with work that was given up (behaviour, backlog): offer it again, or close it.

Each function locks the row's room first, as everything that changes a room's work does, and changes only what no cycle
has in hand. They return the instance, or None when the row is not in a state that allows it.
"""

from __future__ import annotations

from uuid import UUID

from room_common.postgres.database import Connection


async def retry_event(conn: Connection, event_id: UUID) -> UUID | None:
    """Offer a failed event again at once, its attempts forgotten. Not refused at the cap: it was admitted before."""
    return await _change(
        conn,
        "event_backlog",
        event_id,
        "status = 'pending', attempts = 0, deferrals = 0, next_attempt_at = now(), completed_at = null",
        ("failed",),
    )


async def complete_event(conn: Connection, event_id: UUID, note: str) -> UUID | None:
    """Close a pending or failed event without a cycle; ``note`` says who and why."""
    return await _change(
        conn,
        "event_backlog",
        event_id,
        "status = 'completed', completed_at = now(), notes = %(note)s",
        ("pending", "failed"),
        note,
    )


async def retry_reply(conn: Connection, reply_id: UUID) -> UUID | None:
    """Let the room read a failed reply again, its attempts forgotten."""
    return await _change(conn, "room_inbox", reply_id, "status = 'unread', attempts = 0, reason = null", ("failed",))


async def _change(
    conn: Connection, table: str, row_id: UUID, change: str, states: tuple[str, ...], note: str | None = None
) -> UUID | None:
    cursor = await conn.execute(f"select instance_id from {table} where id = %s", (row_id,))
    row = await cursor.fetchone()
    if row is None:
        return None
    await conn.execute("select from instance_room where instance_id = %s for no key update", (row["instance_id"],))
    cursor = await conn.execute(
        f"update {table} set {change} where id = %(id)s and status = any(%(states)s) returning instance_id",
        {"id": row_id, "states": list(states), "note": note},
    )
    changed = await cursor.fetchone()
    return None if changed is None else changed["instance_id"]
