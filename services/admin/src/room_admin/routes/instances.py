"""Instances with their rooms, sources, definitions and channels; revealing a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from room_admin import preconditions
from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.apply import Applier, Urls
from room_admin.problems import Problem
from room_admin.routes.parameters import Page, PageQuery, page_of, room_of
from room_common.contracts.source_config import Verify
from room_common.crypto import UnknownKey
from room_common.errors import Refused
from room_common.postgres import access, configuration, listings
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

router = APIRouter(tags=["instances"])

RoomSlug = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Slug of a room.")]


class UrlAnswer(BaseModel):
    """A URL that takes posts."""

    url: str


class SourceUrlAnswer(UrlAnswer):
    """A source's URL, and how a generic source's deliveries are verified. Never a secret."""

    verify: Verify | None = None


@router.get("/instances")
async def list_instances(database: DatabaseOf, _: Viewer, query: Annotated[PageQuery, Query()]) -> Page:
    """Every instance with the state of its room, by slug."""
    after = query.after("s")
    async with database.transaction() as conn:
        rows = await listings.instances(conn, after=after[0] if after else "", limit=query.limit + 1)
    return page_of(rows, query.limit, ("slug",))


@router.get("/instances/{slug}")
async def show_instance(database: DatabaseOf, caller: Viewer, slug: RoomSlug, response: Response) -> dict[str, Any]:
    """One instance with its mandate and whom it talks to. The target, a person's address, is for operators.

    Its ETag is the version of all of its configuration.
    """
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        await preconditions.tag(conn, instance, response)
        found = await listings.room(conn, instance)
    if found is None:
        raise Problem(404, f"there is no room {slug!r}")
    return found if caller.role == "operator" else {key: value for key, value in found.items() if key != "target"}


@router.get("/instances/{slug}/sources")
async def list_sources(database: DatabaseOf, _: Viewer, slug: RoomSlug, query: Annotated[PageQuery, Query()]) -> Page:
    """The sources of an instance, without their URLs."""
    after = query.after("s")
    async with database.transaction() as conn:
        rows = await listings.sources(conn, await room_of(conn, slug), after=after, limit=query.limit + 1)
    return page_of(rows, query.limit, ("name",))


@router.get("/instances/{slug}/definitions")
async def list_definitions(
    database: DatabaseOf, _: Viewer, slug: RoomSlug, query: Annotated[PageQuery, Query()]
) -> Page:
    """The definitions of an instance, by source and in the order they are asked."""
    after = query.after("siu")
    async with database.transaction() as conn:
        rows = await listings.definitions(conn, await room_of(conn, slug), after=after, limit=query.limit + 1)
    return page_of(rows, query.limit, ("source", "priority", "id"))


@router.get("/instances/{slug}/channels")
async def list_channels(database: DatabaseOf, _: Viewer, slug: RoomSlug, query: Annotated[PageQuery, Query()]) -> Page:
    """The channels of an instance, without their URLs."""
    after = query.after("s")
    async with database.transaction() as conn:
        rows = await listings.channels(conn, await room_of(conn, slug), after=after, limit=query.limit + 1)
    return page_of(rows, query.limit, ("type",))


@router.post("/sources/{source_id}/reveal")
async def reveal_source(request: Request, database: DatabaseOf, caller: Operator, source_id: UUID) -> SourceUrlAnswer:
    """The URL that senders post to, and where a generic source expects its signature. Audited."""
    url, owner = await _reveal(request, database, caller, "source", source_id)
    applier: Applier = request.app.state.applier
    return SourceUrlAnswer(url=url, verify=applier.verify_of(owner))


@router.post("/channels/{channel_id}/reveal")
async def reveal_channel(request: Request, database: DatabaseOf, caller: Operator, channel_id: UUID) -> UrlAnswer:
    """The URL that takes a channel's replies. Audited."""
    url, _ = await _reveal(request, database, caller, "channel", channel_id)
    return UrlAnswer(url=url)


async def _reveal(
    request: Request, database: Database, caller: Caller, kind: Literal["source", "channel"], row_id: UUID
) -> tuple[str, Mapping[str, Any]]:
    """The URL, and what it belongs to."""
    urls: Urls = request.app.state.urls
    async with database.transaction() as conn:
        if kind == "source":
            owner = await listings.owner_of_source(conn, row_id)
            tokens = await configuration.read_tokens(conn, source_id=row_id)
        else:
            owner = await listings.owner_of_channel(conn, row_id)
            tokens = await configuration.read_tokens(conn, channel_id=row_id)
        if owner is None or not tokens:
            raise Problem(404, f"there is no such {kind}, or it has no URL that works")
        path = "webhooks" if kind == "source" else f"channels/{owner['name']}"
        try:
            url = urls.reveal(path, tokens[0])
        except Refused:
            raise Problem(409, "the stored URL can't be decrypted: it was changed outside of Room") from None
        except UnknownKey:
            raise Problem(409, "the key of the stored URL is missing: put it back into ROOM_ENCRYPTION__KEYS") from None
        await access.audit(conn, caller.name, f"reveal_{kind}", instance_id=owner["instance_id"], subject=str(row_id))
    return url, owner
