"""Parameters that several routes take, and the shape of a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, BaseModel

from room_admin.domain.cursor import decode_cursor, encode_cursor
from room_admin.problems import FieldError, Problem
from room_common.errors import Refused
from room_common.postgres import listings
from room_common.postgres.access import Caller
from room_common.postgres.database import Connection
from room_common.postgres.listings import LISTINGS, ListName

EventStatus = Literal["pending", "processing", "completed", "failed"]
ReplyStatus = Literal["unread", "taken", "read", "failed", "ignored"]
CycleStatus = Literal["running", "succeeded", "failed", "abandoned"]
MessageStatus = Literal["queued", "published", "sending", "sent", "failed", "unknown"]


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)  # PostgreSQL refuses offsets that Python takes
    except OverflowError:
        raise ValueError("is out of range") from None


Slug = Annotated[str, Query(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Slug of a room.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Rows of a page.")]
Cursor = Annotated[str | None, Query(max_length=400, description="`next` of the page before.")]
Since = Annotated[
    Annotated[AwareDatetime, AfterValidator(_in_utc)] | None,
    Query(description="Only rows from this time on (RFC 3339 with an offset)."),
]


class Page(BaseModel):
    """A page of a list, newest first. ``next`` is the cursor of the following page, null at the end."""

    items: list[dict[str, Any]]
    next: str | None


async def room_of(conn: Connection, slug: str) -> UUID:
    """The id of a living instance. Raises ``Problem`` 404."""
    found = await listings.instance_id(conn, slug)
    if found is None:
        raise Problem(404, f"there is no room {slug!r}; `room status` and GET /api/v1/instances list them")
    return found


async def read_page(
    conn: Connection,
    caller: Caller,
    name: ListName,
    filters: dict[str, object],
    *,
    cursor: str | None,
    limit: int,
) -> Page:
    """A page of a list as the caller may see it."""
    listing = LISTINGS[name]
    after = None
    if cursor is not None:
        try:
            after = decode_cursor(cursor, _shape(name))
        except Refused as error:
            raise Problem(400, str(error), (FieldError(pointer="?cursor", detail=str(error)),)) from None
    if isinstance(filters.get("room"), str):
        filters = {**filters, "room": await room_of(conn, str(filters["room"]))}
    if isinstance(filters.get("source"), str):
        filters = {**filters, "source": await listings.source_ids(conn, str(filters["source"]), filters.get("room"))}
    rows, following = await listings.page(conn, name, filters, after=after, limit=limit)
    hidden = frozenset() if caller.role == "operator" else listing.private
    return Page(
        items=[{key: value for key, value in row.items() if key not in hidden} for row in rows],
        next=None if following is None else encode_cursor(following),
    )


async def read_one(conn: Connection, caller: Caller, name: ListName, row_id: UUID) -> dict[str, Any]:
    """One row of a list as the caller may see it. Raises ``Problem`` 404."""
    page = await read_page(conn, caller, name, {"id": row_id}, cursor=None, limit=1)
    if not page.items:
        raise Problem(404, "there is no such row; it may have been removed at the end of its retention")
    return page.items[0]


def _shape(name: ListName) -> str:
    return "tui"[: len(LISTINGS[name].key)]
