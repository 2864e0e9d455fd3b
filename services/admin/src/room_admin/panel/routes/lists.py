"""Lists: rows newest first, filters in the address, pages by cursor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError

from room_admin.access import DatabaseOf
from room_admin.panel import pages
from room_admin.panel.routes.deliveries import read_payload
from room_admin.panel.sessions import Visit, Visiting
from room_admin.problems import Problem
from room_admin.routes import parameters
from room_admin.routes.parameters import CycleStatus, EventStatus, MessageStatus, ReplyStatus, read_one, read_page
from room_common.domain.deliveries import OUTCOMES
from room_common.postgres import access, listings, panel_views
from room_common.postgres.activity import ActivityKind
from room_common.postgres.database import Database
from room_common.postgres.listings import ListName

router = APIRouter()

ROWS: Final = 50
PERIODS: Final[Mapping[str, tuple[str, timedelta]]] = {
    "1h": ("last hour", timedelta(hours=1)),
    "6h": ("last 6 hours", timedelta(hours=6)),
    "24h": ("last 24 hours", timedelta(hours=24)),
    "7d": ("last 7 days", timedelta(days=7)),
}
_SLUG: Final = TypeAdapter[str](parameters.Slug)
_MAX_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class ListPage:
    """What a list's page is called and which values its choice (a column of the rows) may have."""

    name: ListName
    title: str
    about: str
    choice: str
    values: tuple[str, ...]
    empty: str
    by_source: bool = False
    also: Mapping[str, str] = field(default_factory=dict)


LISTS: Final[Mapping[ListName, ListPage]] = {
    page.name: page
    for page in (
        ListPage(
            "deliveries",
            "Deliveries",
            "Every webhook that came in, and what became of it.",
            "outcome",
            tuple(OUTCOMES),
            "Nothing has come in yet. Post to a source's URL: a room's page reveals it, and `room send` signs and "
            "sends one from the command line.",
            by_source=True,
        ),
        ListPage(
            "backlog",
            "Backlog",
            "Events that matched, and how far they are.",
            "status",
            get_args(EventStatus),
            "No delivery has matched yet. Each delivery's page shows what every definition was asked and answered.",
        ),
        ListPage(
            "inbox",
            "Inbox",
            "What people answered, and whether a cycle has read it.",
            "status",
            get_args(ReplyStatus),
            "Nobody has answered yet. Replies arrive on the room's channel; `room reply ROOM TEXT` sends one by hand.",
        ),
        ListPage(
            "cycles",
            "Cycles",
            "Runs of the agent: each takes what waits and works through it.",
            "status",
            get_args(CycleStatus),
            "No cycle has run yet. One starts within 30 seconds of an event in the backlog, or at once for a reply.",
        ),
        ListPage(
            "messages",
            "Messages",
            "What the agents wrote to people.",
            "status",
            get_args(MessageStatus),
            "No agent has written yet. A cycle writes when its room has a channel and there is something to say.",
        ),
        ListPage(
            "activity",
            "Activity",
            "Every notable action of every room.",
            "kind",
            get_args(ActivityKind),
            "Nothing has happened yet. The first event that matches starts it.",
        ),
    )
}


@router.get("/deliveries")
async def list_deliveries(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """The ledger."""
    return await _show(request, database, visit, LISTS["deliveries"])


@router.get("/backlog")
async def list_backlog(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Matched events."""
    return await _show(request, database, visit, LISTS["backlog"])


@router.get("/backlog/{event_id}")
async def show_event(request: Request, database: DatabaseOf, visit: Visiting, event_id: UUID) -> Response:
    """One event with its notes, headers and payload, which are for operators."""
    async with database.transaction() as conn:
        event = await read_one(conn, visit.caller, "backlog", event_id)
        stored = await listings.payload(conn, event_id) if visit.operator else None
        if stored is not None:
            await access.audit_reading(
                conn,
                visit.caller.name,
                "show_event_payload",
                subject=str(event_id),
                instance_id=stored["instance_id"],
            )
    payload = None if stored is None else read_payload(stored)
    return pages.page(request, "event.html", visit, event=event, payload=payload)


@router.get("/inbox")
async def list_inbox(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Human replies."""
    return await _show(request, database, visit, LISTS["inbox"])


@router.get("/cycles")
async def list_cycles(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Runs of the supervisor."""
    return await _show(request, database, visit, LISTS["cycles"])


@router.get("/messages")
async def list_messages(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Outbound messages."""
    return await _show(request, database, visit, LISTS["messages"])


@router.get("/activity")
async def list_activity(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Notable actions."""
    return await _show(request, database, visit, LISTS["activity"])


async def _show(request: Request, database: Database, visit: Visit, page: ListPage) -> Response:
    asked = _asked(request, page)
    filters: dict[str, object] = {
        "room": asked["room"],
        page.choice: asked[page.choice],
        "since": None if asked["period"] is None else visit.now - PERIODS[str(asked["period"])][1],
    }
    if page.by_source:
        filters |= {"source": asked["source"], "until": _time(asked["until"])}
    cursor = request.query_params.get("cursor") or None
    async with database.transaction() as conn:
        found = await read_page(conn, visit.caller, page.name, filters, cursor=cursor, limit=ROWS)
        rooms = await panel_views.room_names(conn)
    return pages.page(
        request,
        f"{page.name}.html",
        visit,
        list=page,
        asked=asked,
        periods=PERIODS,
        rooms=rooms,
        rows=found.items,
        next=found.next,
        first=cursor is None,
    )


def _asked(request: Request, page: ListPage) -> dict[str, object]:
    """The filters in the address; those that are empty are none. Raises ``Problem`` 422 for values that can't be."""
    query = {name: value for name, value in request.query_params.items() if value}
    asked: dict[str, object] = {name: query.get(name) for name in ("room", page.choice, "period")}
    if page.by_source:
        asked |= {name: query.get(name) for name in ("source", "until")}
    if asked["room"] is not None:
        try:
            _SLUG.validate_python(asked["room"])
        except ValidationError:
            raise Problem(422, "The room is named by its slug: lower-case letters, digits and dashes.") from None
    _one_of("period", asked["period"], PERIODS)
    _one_of(page.choice, asked[page.choice], page.values)
    source = asked.get("source")
    if isinstance(source, str) and (len(source) > _MAX_NAME or "\x00" in source):
        raise Problem(422, f"A source's name has at most {_MAX_NAME} characters.")
    _time(asked.get("until"))
    return asked


def _one_of(name: str, value: object, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise Problem(422, f"{name} is one of: {', '.join(allowed)}.")


def _time(value: object) -> datetime | None:
    """A time as a date field of a browser writes it; it is in UTC."""
    if value is None:
        return None
    try:
        read = datetime.fromisoformat(str(value))
        if read.tzinfo is None and 1970 <= read.year < 9000:
            return read.replace(tzinfo=UTC)
    except ValueError:
        pass
    raise Problem(422, "The time is written like 2026-05-04T13:30, in UTC.")
