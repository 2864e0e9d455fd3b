"""ETag and If-Match: a change can say which configuration of the room it was made for (RFC 9110, conditional requests).

Every answer about a room's configuration carries the version of all of it. Whoever replaces something that somebody
may have written meanwhile has to say which version they saw; ``*`` stands for any.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Header, Response

from room_admin.problems import Problem
from room_common.postgres import versions
from room_common.postgres.database import Connection

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=1000, description="ETags of the room's configuration that was seen, or `*`."),
]
IfNoneMatch = Annotated[
    Literal["*"] | None, Header(alias="If-None-Match", description="`*`: only where there is no such room yet.")
]
_CHANGED = "the room was changed since this version was read; read it again"


def etag(version: str) -> str:
    """A version as an entity tag."""
    return f'"{version}"'


def needed(if_match: str | None) -> str:
    """The header of a request that replaces something. Raises ``Problem`` 428."""
    if if_match is None:
        raise Problem(428, "send If-Match with the ETag that reading it gave, or * to replace whatever is there")
    return if_match


async def check(conn: Connection, instance_id: UUID, if_match: str | None) -> None:
    """Refuse a change that was made for another version. Raises ``Problem`` 412. Weak tags match nothing."""
    if if_match is None or if_match.strip() == "*":
        return
    tags = {tag.strip() for tag in if_match.split(",")}
    if etag(await versions.version_of(conn, instance_id)) not in tags:
        raise Problem(412, _CHANGED)


async def tag(conn: Connection, instance_id: UUID, response: Response) -> None:
    """Say which version an answer is about."""
    response.headers["ETag"] = etag(await versions.version_of(conn, instance_id))
