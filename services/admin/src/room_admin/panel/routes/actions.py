"""What an operator may do here. Each is the API's own function; the panel only says what came of it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from room_admin.access import DatabaseOf
from room_admin.panel import pages
from room_admin.panel.forms import read_form
from room_admin.panel.sessions import Operating, spends
from room_admin.problems import Problem
from room_admin.routes import changes, deliveries, instances, rooms, work
from room_admin.routes.changes import OrderRequest, RotateRequest, SwitchRequest
from room_admin.routes.deliveries import DeliveriesOf, ReplayRequest
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.postgres import listings

router = APIRouter()

On = Annotated[bool, Query(alias="on")]
_RELOAD = {"HX-Refresh": "true"}


@router.post("/sources/{source_id}/reveal")
async def reveal_source(request: Request, database: DatabaseOf, visit: Operating, source_id: UUID) -> Response:
    """The URL of a source."""
    answer = await instances.reveal_source(request, database, visit.caller, source_id)
    return pages.page(request, "revealed.html", visit, url=answer.url, verify=answer.verify, note=None)


@router.post("/channels/{channel_id}/reveal")
async def reveal_channel(request: Request, database: DatabaseOf, visit: Operating, channel_id: UUID) -> Response:
    """The URL of a channel."""
    answer = await instances.reveal_channel(request, database, visit.caller, channel_id)
    return pages.page(request, "revealed.html", visit, url=answer.url, verify=None, note=None)


@router.post("/sources/{source_id}/rotate")
async def rotate_source(request: Request, database: DatabaseOf, visit: Operating, source_id: UUID) -> Response:
    """A new URL for a source; those of before work for another day."""
    answer = await changes.rotate_token(request, database, visit.caller, source_id, RotateRequest())
    note = answer.old_valid_until
    return pages.page(request, "revealed.html", visit, url=answer.url, verify=None, note=note)


@router.post("/rooms/{slug}/switch")
async def switch_room(database: DatabaseOf, visit: Operating, slug: RoomSlug, on: On) -> Response:
    """A room on or off."""
    await changes.switch_room(database, visit.caller, slug, SwitchRequest(enabled=on))
    return Response(headers=_RELOAD)


@router.post("/sources/{source_id}/switch")
async def switch_source(database: DatabaseOf, visit: Operating, source_id: UUID, on: On) -> Response:
    """A source on or off."""
    await changes.switch_source(database, visit.caller, source_id, SwitchRequest(enabled=on))
    return Response(headers=_RELOAD)


@router.post("/definitions/{definition_id}/switch")
async def switch_definition(database: DatabaseOf, visit: Operating, definition_id: UUID, on: On) -> Response:
    """A definition on or off."""
    await changes.switch_definition(database, visit.caller, definition_id, SwitchRequest(enabled=on))
    return Response(headers=_RELOAD)


@router.post("/rooms/{slug}/definitions/{definition_id}/move")
async def move_definition(
    database: DatabaseOf, visit: Operating, slug: RoomSlug, definition_id: UUID, up: bool
) -> Response:
    """A definition one place up or down among those of its source."""
    async with database.transaction() as conn:
        rows = await listings.definitions(conn, await room_of(conn, slug))
        sources = {row["name"]: row["id"] for row in await listings.sources(conn, await room_of(conn, slug))}
    moved = next((row for row in rows if row["id"] == definition_id), None)
    if moved is None:
        raise Problem(404, "There is no such definition; it may have been deleted.")
    order = [row["id"] for row in rows if row["source"] == moved["source"]]
    place = order.index(definition_id)
    other = place - 1 if up else place + 1
    if 0 <= other < len(order):
        order[place], order[other] = order[other], order[place]
        body = OrderRequest(definitions=order)
        await changes.order_definitions(database, visit.caller, sources[moved["source"]], body)
    return Response(headers=_RELOAD)


@router.post("/sources/{source_id}/order")
async def order_definitions(request: Request, database: DatabaseOf, visit: Operating, source_id: UUID) -> Response:
    """The definitions of a source in the order in which they were put."""
    form = await read_form(request)
    try:
        body = OrderRequest.model_validate({"definitions": form.all("definition")})
    except ValidationError:
        raise Problem(422, "This is not an order of definitions.") from None
    await changes.order_definitions(database, visit.caller, source_id, body)
    return Response(status_code=204)


@router.post("/backlog/{event_id}/retry")
async def retry_event(database: DatabaseOf, visit: Operating, event_id: UUID) -> Response:
    """A failed event is offered again."""
    await work.retry_event(database, visit.caller, event_id)
    return Response(headers=_RELOAD)


@router.post("/backlog/{event_id}/complete")
async def complete_event(database: DatabaseOf, visit: Operating, event_id: UUID) -> Response:
    """An event is closed without a cycle."""
    await work.complete_event(database, visit.caller, event_id)
    return Response(headers=_RELOAD)


@router.post("/inbox/{reply_id}/retry")
async def retry_reply(database: DatabaseOf, visit: Operating, reply_id: UUID) -> Response:
    """A failed reply is read again."""
    await work.retry_reply(database, visit.caller, reply_id)
    return Response(headers=_RELOAD)


@router.post("/messages/{message_id}/resend")
async def resend_message(request: Request, database: DatabaseOf, visit: Operating, message_id: UUID) -> Response:
    """A message that failed, or of which nobody knows, once more."""
    row = await work.resend_message(database, visit.caller, message_id)
    return pages.page(request, "message_row.html", visit, row=row)


@router.post("/rooms/{slug}/tick")
async def run_now(request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug) -> Response:
    """A room looks for work at once."""
    answer = await rooms.tick(database, visit.caller, slug)
    text = {
        "woken": "It looks for work now. A cycle shows up where there is some.",
        "running": "A cycle is under way; it looks again when that has ended.",
    }[answer.room]
    return pages.page(request, "said.html", visit, text=text, link=f"/panel/cycles?room={slug}")


@router.post("/rooms/{slug}/resume")
async def resume_room(database: DatabaseOf, visit: Operating, slug: RoomSlug) -> Response:
    """A parked room goes on."""
    await rooms.resume(database, visit.caller, slug)
    return Response(headers=_RELOAD)


@router.post("/deliveries/{delivery_id}/replay", dependencies=[spends("replay")])
async def replay_delivery(
    request: Request, reading: DeliveriesOf, visit: Operating, delivery_id: UUID, force: bool = False
) -> Response:
    """A delivery once more, under a new id."""
    body = ReplayRequest(force=force, item=None)
    answer = await deliveries.replay_delivery(reading, visit.caller, delivery_id, body)
    text = "It was sent again. Its new life can be followed as soon as it is decided."
    return pages.page(request, "said.html", visit, text=text, link=f"/panel/deliveries/{answer.id}")
