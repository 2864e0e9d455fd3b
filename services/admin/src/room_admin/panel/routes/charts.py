"""Volume, outcomes, latency and tokens over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.charts import latency_chart, outcome_shares, tokens_chart, volume_chart
from room_admin.panel import pages
from room_admin.panel.sessions import Visiting
from room_admin.routes.parameters import SLUG, room_of
from room_common.postgres import panel_charts, panel_views

router = APIRouter()

Period = Literal["24h", "7d"]
PERIODS: Final[Mapping[Period, tuple[str, int, int]]] = {
    "24h": ("last 24 hours", 24, 3600),
    "7d": ("last 7 days", 28, 6 * 3600),
}
"""What each is called, how many bars it has, and how many seconds a bar is."""

Room = Annotated[str, Query(pattern=rf"^$|{SLUG}")]


@router.get("/charts")
async def show_charts(
    request: Request, database: DatabaseOf, visit: Visiting, room: Room = "", period: Period = "24h"
) -> Response:
    """The page; what it draws comes apart, as it counts many rows."""
    async with database.transaction() as conn:
        rooms = await panel_views.room_names(conn)
    return pages.page(request, "charts.html", visit, rooms=rooms, room=room, period=period, periods=PERIODS)


@router.get("/charts/drawn")
async def draw_charts(
    request: Request, database: DatabaseOf, visit: Visiting, room: Room = "", period: Period = "24h"
) -> Response:
    """The charts themselves."""
    _, slots, seconds = PERIODS[period]
    async with database.transaction() as conn:
        instance = await room_of(conn, room) if room else None
        volume = await panel_charts.volume(conn, instance, slots=slots, slot_seconds=seconds)
        deciding = await panel_charts.deciding(conn, instance, slots=slots, slot_seconds=seconds)
        telling = await panel_charts.telling(conn, instance, slots=slots, slot_seconds=seconds)
        tokens = await panel_charts.tokens(conn, instance)
    return pages.page(
        request,
        "charts_drawn.html",
        visit,
        room=room,
        period=period,
        volume=volume_chart(volume, slots, seconds),
        outcomes=outcome_shares(volume),
        deciding=latency_chart(deciding, slots, seconds),
        telling=latency_chart(telling, slots, seconds),
        tokens=tokens_chart(tokens, panel_charts.DAYS, visit.now.date()),
        sample=panel_charts.SAMPLE,
    )
