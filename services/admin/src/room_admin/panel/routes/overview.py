"""Everything at one glance."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.attention import notices
from room_admin.domain.volume import HOURS, hours
from room_admin.panel import pages
from room_admin.panel.sessions import Visiting
from room_common.postgres import panel_charts, panel_views, service_state

router = APIRouter()


@router.get("/")
async def show_overview(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Rooms, processes, and what wants a person."""
    async with database.transaction() as conn:
        rooms = await panel_views.rooms(conn)
        processes = await service_state.list_states(conn)
        sums = await panel_views.day_sums(conn)
    found = notices(rooms, processes, sums["unsent"])
    return pages.page(request, "overview.html", visit, rooms=rooms, processes=processes, sums=sums, notices=found)


@router.get("/volume")
async def show_volume(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """The part of the overview that shows a day's deliveries: it is drawn apart, as it counts the most rows."""
    async with database.transaction() as conn:
        rows = await panel_charts.volume(conn, None, slots=HOURS, slot_seconds=3600)
    return pages.page(request, "volume.html", visit, volume=hours(rows))


@router.get("/services")
async def show_services(request: Request, database: DatabaseOf, visit: Visiting) -> Response:
    """Every process: version, lag, what holds it, when it reported."""
    async with database.transaction() as conn:
        processes = await service_state.list_states(conn)
    return pages.page(request, "services.html", visit, processes=processes)
