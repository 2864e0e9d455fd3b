"""One cycle: its transcript as it grows."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.transcript import turns
from room_admin.panel import pages, sessions
from room_admin.panel.sessions import Visit, Visiting, VisitingOperator
from room_admin.routes.feed import FeedOf, LastEventId, open_cycle
from room_admin.routes.parameters import read_one, read_page
from room_common.postgres import access, listings
from room_common.postgres.database import Database

router = APIRouter()

_MESSAGES = 100


@router.get("/cycles/{cycle_id}")
async def show_cycle(request: Request, database: DatabaseOf, visit: Visiting, cycle_id: UUID) -> Response:
    """A cycle. The transcript is for operators."""
    return await _show(request, database, visit, cycle_id, "cycle.html")


@router.get("/cycles/{cycle_id}/live")
async def show_live(request: Request, database: DatabaseOf, visit: Visiting, cycle_id: UUID) -> Response:
    """The part of that page which changes while the cycle runs."""
    return await _show(request, database, visit, cycle_id, "cycle_live.html")


@router.get("/cycles/{cycle_id}/feed")
async def follow_cycle(
    request: Request,
    feed: FeedOf,
    database: DatabaseOf,
    visit: VisitingOperator,
    cycle_id: UUID,
    last_event_id: LastEventId = None,
) -> Response:
    """The API's feed of a cycle, for a browser: it ends with the session."""
    holds = sessions.still_open(request, database)
    return await open_cycle(feed, database, visit.caller, cycle_id, last_event_id, holds)


async def _show(request: Request, database: Database, visit: Visit, cycle_id: UUID, template: str) -> Response:
    async with database.transaction() as conn:
        cycle = await read_one(conn, visit.caller, "cycles", cycle_id)
        sent = await read_page(conn, visit.caller, "messages", {"cycles": [cycle_id]}, cursor=None, limit=_MESSAGES)
        rows = await listings.transcript(conn, cycle_id) if visit.operator else []
        if visit.operator:
            await access.audit_reading(conn, visit.caller.name, "show_transcript", subject=str(cycle_id))
    return pages.page(
        request, template, visit, cycle=cycle, turns=turns(rows), messages=sorted(sent.items, key=lambda m: m["seq"])
    )
