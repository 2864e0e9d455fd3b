"""A room's chronicle, by day, week or month."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.chronicle import By, chronicle
from room_admin.panel import pages
from room_admin.panel.sessions import Visiting
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import read_page, room_of
from room_common.postgres import panel_views

router = APIRouter()

_AGED = 60
_ENTRIES = 300


@router.get("/rooms/{slug}/chronicle")
async def show_chronicle(
    request: Request, database: DatabaseOf, visit: Visiting, slug: RoomSlug, by: By = "day"
) -> Response:
    """What happened, period by period; days list every action, what is older was summed up."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        days = await panel_views.activity_days(conn, instance)
        aged = await panel_views.aged(conn, instance, _AGED)
        latest = await read_page(conn, visit.caller, "activity", {"room": instance}, cursor=None, limit=_ENTRIES)
    entries: dict[object, list[dict[str, object]]] = {}
    for row in latest.items:
        if row["log_type"] == "daily":
            entries.setdefault(row["log_date"], []).append(row)
    return pages.page(
        request,
        "chronicle.html",
        visit,
        slug=slug,
        by=by,
        periods=chronicle(days, aged, by),
        entries=entries if by == "day" else {},
    )
