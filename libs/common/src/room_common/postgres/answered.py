"""Answers that are given again when a request with the same idempotency key comes again.

A request claims its key before it does anything, and leaves its answer, encrypted, when it is done. A claim whose
process died ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from room_common.postgres.database import Connection

HOURS: Final = 24
"""How long an answer is kept."""
CLAIM_SECONDS: Final = 180
"""How long a request may take; after that the same one may be made anew."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An earlier request of that key. ``answer`` is None while it is worked on."""

    request_sha256: bytes
    answer: bytes | None


async def claim(conn: Connection, key_sha256: bytes, request_sha256: bytes) -> Answered | None:
    """Take a key; None when it is free, and ours from now on. What has expired is deleted on the way."""
    await conn.execute(
        "delete from api_answers where key_sha256 in (select key_sha256 from api_answers"
        " where expires_at <= now() limit 100 for update skip locked)"
    )
    cursor = await conn.execute(
        """
        insert into api_answers (key_sha256, request_sha256, expires_at)
        values (%(key)s, %(request)s, now() + make_interval(secs => %(seconds)s))
        on conflict (key_sha256) do update
        set request_sha256 = excluded.request_sha256, answer = null, expires_at = excluded.expires_at
        where api_answers.expires_at <= now()
        """,
        {"key": key_sha256, "request": request_sha256, "seconds": CLAIM_SECONDS},
    )
    if cursor.rowcount == 1:
        return None
    cursor = await conn.execute("select request_sha256, answer from api_answers where key_sha256 = %s", (key_sha256,))
    row = await cursor.fetchone()
    if row is None:  # given back this moment: the same as one that is still worked on
        return Answered(request_sha256, None)
    return Answered(bytes(row["request_sha256"]), None if row["answer"] is None else bytes(row["answer"]))


async def keep(conn: Connection, key_sha256: bytes, answer: bytes) -> None:
    """Keep the answer, which is encrypted."""
    await conn.execute(
        "update api_answers set answer = %s, expires_at = now() + make_interval(hours => %s) where key_sha256 = %s",
        (answer, HOURS, key_sha256),
    )


async def give_back(conn: Connection, key_sha256: bytes) -> None:
    """The request failed and changed nothing: its key is free again."""
    await conn.execute("delete from api_answers where key_sha256 = %s and answer is null", (key_sha256,))
