"""Parameters that several routes take, and the shape of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from room_admin.domain.cursor import MAX_CURSOR, decode_cursor, encode_cursor
from room_admin.problems import FieldError, Problem
from room_common.domain.deliveries import Outcome
from room_common.errors import Refused
from room_common.postgres import listings
from room_common.postgres.access import Caller
from room_common.postgres.database import Connection, Database
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


SLUG = r"^[a-z0-9][a-z0-9-]{0,62}$"

Slug = Annotated[str, Query(pattern=SLUG, description="Slug of a room.")]
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Since = Annotated[Moment | None, Query(description="Only rows from this time on (RFC 3339 with an offset).")]


class PageQuery(BaseModel):
    """What a list without filters takes."""

    cursor: str | None = Field(None, max_length=MAX_CURSOR, description="`next` of the page before.")
    limit: int = Field(500, ge=1, le=500, description="Rows of a page.")

    def after(self, shape: str) -> Any:
        """The sort key that the cursor holds, None at the beginning. Raises ``Problem`` 400."""
        return None if self.cursor is None else _read_cursor(self.cursor, shape)


class ListQuery(BaseModel):
    """What every list takes. A list's own filters are further fields, named as in :data:`LISTINGS`."""

    room: Annotated[str, Field(pattern=SLUG)] | None = Field(None, description="Slug of a room.")
    since: Moment | None = Field(None, description="Only rows from this time on (RFC 3339 with an offset).")
    cursor: str | None = Field(None, max_length=MAX_CURSOR, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=500, description="Rows of a page.")

    def filters(self) -> dict[str, object]:
        """What to filter by: every field that is not about the page."""
        return {name: value for name, value in self if name not in ("cursor", "limit")}


class DeliveriesQuery(ListQuery):
    """The ledger's filters."""

    source: Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00]*$")] | None = None
    outcome: Outcome | None = None


class BacklogQuery(ListQuery):
    """The backlog's filters."""

    status: EventStatus | None = None


class InboxQuery(ListQuery):
    """The inbox's filters."""

    status: ReplyStatus | None = None


class CyclesQuery(ListQuery):
    """The cycles' filters."""

    status: CycleStatus | None = None


class MessagesQuery(ListQuery):
    """The messages' filters."""

    status: MessageStatus | None = None


class ActivityQuery(ListQuery):
    """The activity log's filters."""

    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")] | None = None


class Page(BaseModel):
    """A page of a list, newest first. ``next`` is the cursor of the following page, null at the end."""

    items: list[dict[str, Any]]
    next: str | None


async def room_of(conn: Connection, slug: str) -> UUID:
    """The id of a living instance. Raises ``Problem`` 404."""
    found = await listings.instance_id(conn, slug)
    if found is None:
        raise Problem(404, f"there is no room {slug!r}; `room rooms` and GET /api/v1/instances list them")
    return found


async def list_page(database: Database, caller: Caller, name: ListName, query: ListQuery) -> Page:
    """The page of a list that a query asks for, as the caller may see it."""
    async with database.transaction() as conn:
        return await read_page(conn, caller, name, query.filters(), cursor=query.cursor, limit=query.limit)


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
    after = None if cursor is None else _read_cursor(cursor, _shape(name))
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


def page_of(rows: Sequence[Mapping[str, Any]], limit: int, key: tuple[str, ...]) -> Page:
    """A page of rows that were read with one more than ``limit``, in the order of ``key``."""
    more = len(rows) > limit
    kept = [dict(row) for row in rows[:limit]]
    return Page(items=kept, next=encode_cursor([kept[-1][name] for name in key]) if more else None)


def _read_cursor(cursor: str, shape: str) -> tuple[Any, ...]:
    try:
        return decode_cursor(cursor, shape)
    except Refused as error:
        raise Problem(400, str(error), (FieldError(pointer="?cursor", detail=str(error)),)) from None


def _shape(name: ListName) -> str:
    return "tui"[: len(LISTINGS[name].key)]
