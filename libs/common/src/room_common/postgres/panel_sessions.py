"""Who is signed in to the panel.

A browser holds a random id, of which only the digest is stored. A session ends at its time by the database's clock, at
once when its API token is revoked, or when its holder signs out; every admin process sees the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from room_common.postgres.access import Caller
from room_common.postgres.database import Connection

HOURS: Final = 12
"""How long a session lasts. It is not prolonged by use."""


@dataclass(frozen=True, slots=True)
class PanelSession:
    """A session that holds: whose it is, and the database's time of now."""

    caller: Caller
    now: datetime


async def open_session(conn: Connection, id_sha256: bytes, token_sha256: bytes) -> None:
    """Begin a session of the holder of an API token; those that have ended are deleted on the way."""
    await conn.execute("delete from panel_sessions where expires_at <= now()")
    await conn.execute(
        """
        insert into panel_sessions (id_sha256, token_sha256, expires_at)
        values (%s, %s, now() + make_interval(hours => %s))
        """,
        (id_sha256, token_sha256, HOURS),
    )


async def find_session(conn: Connection, id_sha256: bytes) -> PanelSession | None:
    """The session of that id, or None: unknown, over, or its token was revoked."""
    cursor = await conn.execute(
        """
        select t.name, t.role, now() as now
        from panel_sessions s join api_tokens t on t.sha256 = s.token_sha256
        where s.id_sha256 = %s and s.expires_at > now() and t.revoked_at is null
        """,
        (id_sha256,),
    )
    row = await cursor.fetchone()
    return None if row is None else PanelSession(Caller(row["name"], row["role"]), row["now"])


async def close_session(conn: Connection, id_sha256: bytes) -> None:
    """End a session."""
    await conn.execute("delete from panel_sessions where id_sha256 = %s", (id_sha256,))
