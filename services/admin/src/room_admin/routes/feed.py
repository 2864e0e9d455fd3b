"""What happens, as it happens: server-sent events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from room_admin.access import DatabaseOf, Operator, Viewer, still_valid
from room_admin.feed import Feed
from room_admin.routes.parameters import Slug, read_one, room_of
from room_admin.streaming import EventStream
from room_common.postgres import access
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

router = APIRouter(tags=["feed"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events; docs/api.md lists them.", "content": {"text/event-stream": {}}}
}


def feed_of(request: Request) -> Feed:
    """The feed of this process."""
    found: Feed = request.app.state.feed
    return found


FeedOf = Annotated[Feed, Depends(feed_of)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Go on after this event.")]


@router.get("/feed", response_class=Response, responses=_STREAM)
async def listen(
    request: Request,
    feed: FeedOf,
    database: DatabaseOf,
    caller: Viewer,
    room: Annotated[Slug | None, Query()] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Rooms, cycles, processes and activity as they change: first the states of all, then what is new."""
    if room is not None:
        async with database.transaction() as conn:
            await room_of(conn, room)
    holds = still_valid(request, database)
    return EventStream(await feed.listen(caller.name, room=room, last_event_id=last_event_id or None, holds=holds))


@router.get("/cycles/{cycle_id}/feed", response_class=Response, responses=_STREAM)
async def follow(
    request: Request,
    feed: FeedOf,
    database: DatabaseOf,
    caller: Operator,
    cycle_id: UUID,
    last_event_id: LastEventId = None,
) -> Response:
    """One cycle as it runs: its transcript row by row, its state, its messages, and `end`. Audited."""
    return await open_cycle(feed, database, caller, cycle_id, last_event_id, still_valid(request, database))


async def open_cycle(
    feed: Feed,
    database: Database,
    caller: Caller,
    cycle_id: UUID,
    last_event_id: str | None,
    holds: Callable[[], Awaitable[bool]],
) -> Response:
    """The feed of a cycle for as long as what let the caller in ``holds``. Audited."""
    async with database.transaction() as conn:
        await read_one(conn, caller, "cycles", cycle_id)
        await access.audit_reading(conn, caller.name, "show_transcript", subject=str(cycle_id))
    return EventStream(await feed.follow(caller.name, cycle_id, last_event_id=last_event_id or None, holds=holds))
