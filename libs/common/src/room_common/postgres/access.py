"""Who may use the API, and what they did."""

from __future__ import annotations

from dataclasses import dataclass
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
