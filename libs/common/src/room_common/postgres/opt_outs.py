"""People who asked a channel not to write to them any more (STOP), until they ask again (START)."""

from __future__ import annotations

from uuid import UUID

from room_common.postgres.database import Connection


async def put(conn: Connection, channel_id: UUID, contact: str) -> None:
    """Nothing is sent to ``contact``, in its canonical form, from now on."""
    await conn.execute(
        "insert into channel_opt_outs (channel_id, contact) values (%s, %s) on conflict do nothing",
        (channel_id, contact),
    )


async def drop(conn: Connection, channel_id: UUID, contact: str) -> None:
    """The person wants messages again."""
    await conn.execute("delete from channel_opt_outs where channel_id = %s and contact = %s", (channel_id, contact))


async def holds(conn: Connection, channel_id: UUID, contact: str) -> bool:
    """Whether this person has opted out."""
    cursor = await conn.execute(
        "select from channel_opt_outs where channel_id = %s and contact = %s", (channel_id, contact)
    )
    return await cursor.fetchone() is not None
