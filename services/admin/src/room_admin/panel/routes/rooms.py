"""One room: what it is told, what feeds it, whom it talks to, and what it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.panel import pages
from room_admin.panel.sessions import Visiting
from room_admin.problems import Problem
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import read_page, room_of
from room_common.postgres import listings, panel_views, usage

router = APIRouter()

_LATEST = 12
_AGED = 20


@router.get("/rooms/{slug}")
async def show_room(request: Request, database: DatabaseOf, visit: Visiting, slug: RoomSlug) -> Response:
    """A room. Whom it talks to, a person's address, is for operators, as in the API."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        room = await listings.room(conn, instance)
        if room is None:
            raise Problem(404, f"there is no room {slug!r}")
        values: dict[str, Any] = {
            "sources": await listings.sources(conn, instance),
            "definitions": await listings.definitions(conn, instance),
            "channels": await listings.channels(conn, instance),
            "budget": await usage.today(conn, instance),
            "days": _days(await panel_views.activity_days(conn, instance)),
            "aged": await panel_views.aged(conn, instance, _AGED),
            "latest": await read_page(conn, visit.caller, "activity", {"room": instance}, cursor=None, limit=_LATEST),
        }
    target = room.pop("target")
    if visit.operator:
        values["target"] = target
    return pages.page(request, "room.html", visit, room=room, **values)


def _days(rows: Sequence[Mapping[str, Any]]) -> list[tuple[date, Sequence[tuple[str, str, int]], int]]:
    """Per day: kinds with severity and number, and how many actions there were."""

    def kinds(of_day: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
        return [(row["kind"], row["severity"], row["actions"]) for row in of_day]

    days = [(day, kinds(of_day)) for day, of_day in groupby(rows, key=lambda row: row["log_date"])]
    return [(day, found, sum(actions for _, _, actions in found)) for day, found in days]
