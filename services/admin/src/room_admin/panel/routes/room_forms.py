"""Making, changing and deleting a room, and whom its agent talks to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.form_errors import Wrong, slug_of
from room_admin.panel import pages
from room_admin.panel.forms import Form, Refused, go_to, read_form, taking, version_of
from room_admin.panel.sessions import Operating, Visit, VisitingOperator, spends
from room_admin.problems import Problem
from room_admin.routes import apply as documents
from room_admin.routes import changes
from room_admin.routes import settings as api
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.contracts.channel_config import CHANNEL_SECRETS, CHANNEL_TYPES, REPLYING, ChannelType
from room_common.contracts.room_document import ChannelDocument
from room_common.postgres import listings
from room_common.postgres.database import Database

router = APIRouter()

_ROOM: Final = ("name", "slug", "mandate", "timezone", "token_budget_daily")
_CHANNEL: Final = ("target", "delivery", "sender", "allow")
_SECRETS: Final = frozenset(name for names in CHANNEL_SECRETS.values() for name in names)
_EMPTY: Final = "Write something here."


@router.get("/new")
async def show_new_room(request: Request, visit: VisitingOperator) -> Response:
    """The form of a new room."""
    return _room_page(request, visit, {"timezone": "UTC", "talks": "local", "target": "you"}, Wrong(), None)


@router.post("/new")
async def make_room(request: Request, database: DatabaseOf, visit: Operating) -> Response:
    """Make a room, and its local channel where one is wanted."""
    form = await read_form(request)
    slug = form.text("slug") or slug_of(form.text("name"))
    try:
        if not slug:
            raise Refused(Wrong({"slug" if form.text("name") else "name": _EMPTY}))
        with taking((*_ROOM, "target")):
            channel = None
            if form.text("talks") == "local":
                channel = api.Channel(type="local", target=form.text("target") or "you")
            body = api.NewRoom.model_validate({"slug": slug, **_room_values(form)})
            await api.make_room(request, database, visit.caller, body)
            if channel is not None:
                await api.set_channel(request, visit.caller, slug, channel, "*")
    except Refused as refused:
        return _room_page(request, visit, form.shown(), refused.wrong, None)
    return go_to(f"/panel/rooms/{slug}")


@router.get("/rooms/{slug}/edit")
async def show_room_form(request: Request, database: DatabaseOf, visit: VisitingOperator, slug: RoomSlug) -> Response:
    """The form of a room."""
    seen = await version_of(database, slug)
    room = await _room(database, slug)
    values = {name: "" if room[name] is None else str(room[name]) for name in _ROOM}
    return _room_page(request, visit, values | {"seen": seen}, Wrong(), slug)


@router.post("/rooms/{slug}/edit")
async def change_room(request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug) -> Response:
    """Change a room's name, mandate, timezone and budget."""
    form = await read_form(request)
    try:
        with taking(_ROOM):
            budget = form.text("token_budget_daily")
            body = api.ChangeRoom.model_validate(_room_values(form) | {"token_budget_daily": budget or None})
            await api.change_room(request, database, visit.caller, slug, body, form.text("seen"))
    except Refused as refused:
        return _room_page(request, visit, form.shown() | {"slug": slug}, refused.wrong, slug)
    return go_to(f"/panel/rooms/{slug}")


@router.post("/rooms/{slug}/delete")
async def delete_room(request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug) -> Response:
    """Delete a room, once its slug was written out."""
    form = await read_form(request)
    if form.text("sure") != slug:
        raise Problem(422, f"Write the slug, {slug}, to say that this room is meant.")
    await changes.delete_room(database, visit.caller, slug)
    return go_to("/panel/")


@router.get("/rooms/{slug}/channel")
async def show_channel(
    request: Request, database: DatabaseOf, visit: VisitingOperator, slug: RoomSlug, type: str = ""
) -> Response:
    """The form of a room's channel; another type of channel has another form."""
    seen = await version_of(database, slug)
    current = await _channel(request, visit, slug)
    kind = _kind(type or (current.type if current else "local"))
    values = {"seen": seen, "delivery": "at_least_once", "target": "you" if kind == "local" else ""}
    if current is not None and current.type == kind:
        values |= {"target": current.target, "delivery": current.delivery, "sender": current.sender or ""}
        values["allow"] = "\n".join(current.allow)
    return _channel_page(request, visit, slug, kind, current, values, Wrong())


@router.post("/rooms/{slug}/channel")
async def change_channel(
    request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug, type: str
) -> Response:
    """Have the agent talk on this channel. Secrets that are left empty stay what is stored."""
    form, kind = await read_form(request), _kind(type)
    values: dict[str, Any] = {
        "type": kind,
        "target": form.text("target"),
        "delivery": form.text("delivery") or "at_least_once",
        "secrets": {name: form.text(name) for name in CHANNEL_SECRETS[kind] if form.text(name)},
    }
    if kind == "whatsapp":
        values["sender"] = form.text("sender")
    if kind in REPLYING:
        values["allow"] = [line.strip() for line in form.text("allow").splitlines() if line.strip()]
    try:
        with taking((*_CHANNEL, *CHANNEL_SECRETS[kind])):
            body = api.Channel.model_validate(values)
            await api.set_channel(request, visit.caller, slug, body, form.text("seen"))
    except Refused as refused:
        current = await _channel(request, visit, slug)
        return _channel_page(request, visit, slug, kind, current, form.shown(_SECRETS), refused.wrong)
    return go_to(f"/panel/rooms/{slug}#channel")


@router.post("/rooms/{slug}/channel/remove")
async def remove_channel(request: Request, visit: Operating, slug: RoomSlug) -> Response:
    """Have the agent talk to nobody."""
    await api.remove_channel(request, visit.caller, slug)
    return go_to(f"/panel/rooms/{slug}#channel")


@router.post("/rooms/{slug}/channel/test", dependencies=[spends("write")])
async def send_test(request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug) -> Response:
    """A test message, by the way that the agent's messages go."""
    await api.send_test(database, visit.caller, slug, api.TestMessage())
    text = "A test message is on its way."
    return pages.page(request, "said.html", visit, text=text, link=f"/panel/messages?room={slug}")


async def _room(database: Database, slug: str) -> Mapping[str, Any]:
    async with database.transaction() as conn:
        found = await listings.room(conn, await room_of(conn, slug))
    if found is None:
        raise Problem(404, f"there is no room {slug!r}")
    return found


async def _channel(request: Request, visit: Visit, slug: str) -> ChannelDocument | None:
    return (await documents.export(request, slug, visit.caller)).room.channel


def _room_values(form: Form) -> dict[str, Any]:
    return {name: form.text(name) for name in ("name", "mandate")} | {"timezone": form.text("timezone") or "UTC"}


def _kind(text: str) -> ChannelType:
    for kind in CHANNEL_TYPES:
        if kind == text:
            return kind
    raise Problem(422, f"A channel is one of: {', '.join(CHANNEL_TYPES)}.")


def _room_page(request: Request, visit: Visit, values: Mapping[str, str], wrong: Wrong, slug: str | None) -> Response:
    return pages.page(request, "room_form.html", visit, wrong.status, values=values, wrong=wrong, slug=slug)


def _channel_page(
    request: Request,
    visit: Visit,
    slug: str,
    kind: ChannelType,
    current: ChannelDocument | None,
    values: Mapping[str, str],
    wrong: Wrong,
) -> Response:
    return pages.page(
        request,
        "channel_form.html",
        visit,
        wrong.status,
        slug=slug,
        kind=kind,
        kinds=CHANNEL_TYPES,
        current=current,
        secrets=CHANNEL_SECRETS[kind],
        replying=kind in REPLYING,
        values=values,
        wrong=wrong,
    )
