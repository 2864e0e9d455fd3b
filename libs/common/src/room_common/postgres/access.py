"""Who may use the API, and what they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from room_common.identity import new_id
from room_common.postgres.database import Connection

Role = Literal["viewer", "operator"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who holds a token."""

    name: str
    role: Role


async def find_caller(conn: Connection, token_sha256: bytes) -> Caller | None:
    """The holder of a token that was not revoked, or None."""
    cursor = await conn.execute(
        "select name, role from api_tokens where sha256 = %s and revoked_at is null", (token_sha256,)
    )
    row = await cursor.fetchone()
    return None if row is None else Caller(row["name"], row["role"])


async def bootstrap(conn: Connection, token_sha256: bytes) -> bool:
    """Make the first operator. False once any operator exists: the bootstrap token opens an empty installation only."""
    await conn.execute("select pg_advisory_xact_lock(hashtextextended('room:bootstrap', 0))")
    cursor = await conn.execute(
        """
        insert into api_tokens (sha256, name, role)
        select %s, 'bootstrap', 'operator'
        where not exists (select from api_tokens where role = 'operator' and revoked_at is null)
        on conflict (sha256) do nothing
        """,
        (token_sha256,),
    )
    return cursor.rowcount == 1


async def audit(
    conn: Connection,
    actor: str,
    action: str,
    *,
    instance_id: UUID | None = None,
    subject: str | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Record what an operator did. ``detail`` holds no secret."""
    await conn.execute(
        "insert into audit_log (id, actor, action, instance_id, subject, detail) values (%s, %s, %s, %s, %s, %s)",
        (new_id(), actor, action, instance_id, subject, Jsonb(detail or {})),
    )


async def audit_reading(
    conn: Connection, actor: str, action: str, *, subject: str, instance_id: UUID | None = None
) -> None:
    """Record that an operator read a payload or a transcript: once in ten minutes for each, however often they look."""
    await conn.execute(
        """
        insert into audit_log (id, actor, action, instance_id, subject)
        select %(id)s, %(actor)s, %(action)s, %(instance)s, %(subject)s
        where not exists (select from audit_log
                          where subject = %(subject)s and actor = %(actor)s and action = %(action)s
                            and occurred_at > now() - interval '10 minutes')
        """,
        {"id": new_id(), "actor": actor, "action": action, "instance": instance_id, "subject": subject},
    )


async def holders(conn: Connection, *, after: tuple[datetime, str] | None, limit: int) -> Sequence[dict[str, Any]]:
    """Every token that may be used or was, newest first, without the token. ``id`` begins its digest."""
    at, token_id = after or (None, None)
    cursor = await conn.execute(
        """
        select * from (
            select encode(substr(sha256, 1, 8), 'hex') as id, name, role, created_at, revoked_at from api_tokens) t
        where %(at)s::timestamptz is null or (created_at, id) < (%(at)s, %(id)s)
        order by created_at desc, id desc limit %(limit)s
        """,
        {"at": at, "id": token_id, "limit": limit},
    )
    return await cursor.fetchall()


async def add_holder(conn: Connection, token_sha256: bytes, name: str, role: Role) -> dict[str, Any]:
    """Let somebody in; returns their row as :func:`holders` does."""
    cursor = await conn.execute(
        """
        insert into api_tokens (sha256, name, role) values (%s, %s, %s)
        returning encode(substr(sha256, 1, 8), 'hex') as id, name, role, created_at, revoked_at
        """,
        (token_sha256, name, role),
    )
    row = await cursor.fetchone()
    assert row is not None
    return row


async def revoke(conn: Connection, token_id: str) -> str | Literal[False] | None:
    """Revoke a token; returns its holder's name. None: no such valid token; False: it is the last operator's."""
    await conn.execute("select pg_advisory_xact_lock(hashtextextended('room:bootstrap', 0))")
    cursor = await conn.execute(
        """
        select sha256, name, role, (select count(*) from api_tokens where role = 'operator' and revoked_at is null)
            as operators
        from api_tokens where encode(substr(sha256, 1, 8), 'hex') = %s and revoked_at is null
        """,
        (token_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    if row["role"] == "operator" and row["operators"] == 1:
        return False
    await conn.execute("update api_tokens set revoked_at = now() where sha256 = %s", (row["sha256"],))
    return str(row["name"])
