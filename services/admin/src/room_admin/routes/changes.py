"""Single changes to what is configured: a new URL, on and off, the order of definitions, deletion."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from room_admin import preconditions
from room_admin.access import DatabaseOf, Operator
from room_admin.apply import Urls
from room_admin.preconditions import IfMatch
from room_admin.problems import FieldError, Problem
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.postgres import access, changes, configuration
from room_common.postgres.access import Caller
from room_common.postgres.changes import Kind, Thing
from room_common.postgres.database import Connection, Database

router = APIRouter(tags=["changes"])

MAX_GRACE = 30 * 24 * 3600


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class RotateRequest(_Body):
    """How long the URLs of before go on to work."""

    grace_seconds: int = Field(
        24 * 3600, ge=0, le=MAX_GRACE, description="Seconds that the URLs of before still work; 0: they end now."
    )


class RotateAnswer(BaseModel):
    """The new URL, shown this once, and when the last URL of before ends (null: there was none)."""

    url: str
    old_valid_until: datetime | None


class SwitchRequest(_Body):
    """What is to change."""

    enabled: bool


class SwitchAnswer(BaseModel):
    """``changed`` is false when it was so already."""

    name: str
    enabled: bool
    changed: bool


class OrderRequest(_Body):
    """Every definition of the source, first asked first."""

    definitions: Annotated[list[UUID], Field(min_length=1, max_length=1000)]


class OrderAnswer(BaseModel):
    """The order as it is now."""

    definitions: list[UUID]


class DeleteAnswer(BaseModel):
    """What was deleted."""

    name: str


class DeleteRoomAnswer(DeleteAnswer):
    """And what went with it: sources, URLs that work no more, messages that are sent no more, a cycle cut off."""

    sources: int
    urls: int
    messages: int
    cycle_fenced: bool


@router.post("/sources/{source_id}/rotate-token")
async def rotate_token(
    request: Request,
    database: DatabaseOf,
    caller: Operator,
    source_id: UUID,
    body: RotateRequest,
    if_match: IfMatch = None,
) -> RotateAnswer:
    """Make a new URL for a source; those of before end after a grace period. Audited."""
    urls: Urls = request.app.state.urls
    async with database.transaction() as conn:
        source = await _locked(conn, "source", source_id, if_match)
        until = await changes.expire_tokens(conn, source_id, body.grace_seconds)
        url = await urls.make(conn, "webhooks", source_id=source_id)
        await _audit(conn, caller, "rotate_token", source, {"grace_seconds": body.grace_seconds})
    return RotateAnswer(url=url, old_valid_until=until)


async def switch_source(
    database: Database, caller: Caller, source_id: UUID, body: SwitchRequest, if_match: str | None = None
) -> SwitchAnswer:
    """Switch a source on or off: while it is off its deliveries are recorded and dropped. Audited."""
    return await _switch(database, caller, "source", source_id, body.enabled, if_match)


async def switch_definition(
    database: Database, caller: Caller, definition_id: UUID, body: SwitchRequest, if_match: str | None = None
) -> SwitchAnswer:
    """Switch a definition on or off: while it is off it is not asked. Audited."""
    return await _switch(database, caller, "definition", definition_id, body.enabled, if_match)


async def switch_room(
    database: Database, caller: Caller, slug: str, body: SwitchRequest, if_match: str | None = None
) -> SwitchAnswer:
    """Switch a room on or off; on also frees one that was parked for its failures. Audited."""
    async with database.transaction() as conn:
        await configuration.lock_slug(conn, slug)
        instance = await room_of(conn, slug)
        await preconditions.check(conn, instance, if_match)
        changed = await changes.enable_room(conn, instance, body.enabled)
        if changed:
            action = "enable_room" if body.enabled else "disable_room"
            await access.audit(conn, caller.name, action, instance_id=instance, subject=slug)
    return SwitchAnswer(name=slug, enabled=body.enabled, changed=changed)


@router.put("/sources/{source_id}/definitions/order")
async def order_definitions(
    database: DatabaseOf, caller: Operator, source_id: UUID, body: OrderRequest, if_match: IfMatch = None
) -> OrderAnswer:
    """Have the definitions of a source asked in this order. Audited."""
    async with database.transaction() as conn:
        source = await _locked(conn, "source", source_id, if_match)
        if not await changes.order(conn, source_id, body.definitions):
            detail = "name every definition of the source once; GET /instances/{slug}/definitions lists them"
            raise Problem(422, detail, (FieldError(pointer="/definitions", detail=detail),))
        await _audit(conn, caller, "order_definitions", source, {})
    return OrderAnswer(definitions=body.definitions)


@router.delete("/sources/{source_id}")
async def delete_source(
    database: DatabaseOf, caller: Operator, source_id: UUID, if_match: IfMatch = None
) -> DeleteAnswer:
    """Delete a source with its definitions; its URLs end now, events that wait go on. Audited."""
    async with database.transaction() as conn:
        source = await _locked(conn, "source", source_id, if_match)
        await configuration.delete_source(conn, source_id)
        await _audit(conn, caller, "delete_source", source, {})
    return DeleteAnswer(name=source.name)


@router.delete("/definitions/{definition_id}")
async def delete_definition(
    database: DatabaseOf, caller: Operator, definition_id: UUID, if_match: IfMatch = None
) -> DeleteAnswer:
    """Delete a definition; events that wait for it go on with its prompts. Audited."""
    async with database.transaction() as conn:
        definition = await _locked(conn, "definition", definition_id, if_match)
        await configuration.delete_definition(conn, definition_id)
        await _audit(conn, caller, "delete_definition", definition, {})
    return DeleteAnswer(name=definition.name)


@router.delete("/instances/{slug}")
async def delete_room(
    database: DatabaseOf, caller: Operator, slug: RoomSlug, if_match: IfMatch = None
) -> DeleteRoomAnswer:
    """Delete an instance: its room is off, its URLs end, its cycle is cut off, messages that wait fail. Audited."""
    async with database.transaction() as conn:
        await configuration.lock_slug(conn, slug)
        instance = await room_of(conn, slug)
        await preconditions.check(conn, instance, if_match)
        deleted = await changes.delete_instance(conn, instance)
        await access.audit(conn, caller.name, "delete_instance", instance_id=instance, subject=slug)
    return DeleteRoomAnswer(
        name=slug,
        sources=deleted.sources,
        urls=deleted.tokens,
        messages=deleted.messages,
        cycle_fenced=deleted.cycle_fenced,
    )


async def _switch(
    database: Database, caller: Caller, kind: Kind, thing_id: UUID, enabled: bool, if_match: str | None
) -> SwitchAnswer:
    async with database.transaction() as conn:
        thing = await _locked(conn, kind, thing_id, if_match)
        changed = await changes.enable(conn, kind, thing_id, enabled)
        if changed:
            await _audit(conn, caller, f"{'enable' if enabled else 'disable'}_{kind}", thing, {})
    return SwitchAnswer(name=thing.name, enabled=enabled, changed=changed)


async def _locked(conn: Connection, kind: Kind, thing_id: UUID, if_match: str | None) -> Thing:
    """The thing, with its instance locked against documents that are applied. Raises ``Problem`` 404, 412."""
    thing = await changes.find(conn, kind, thing_id)
    if thing is not None:
        await configuration.lock_slug(conn, thing.slug)
        thing = await changes.find(conn, kind, thing_id)
    if thing is None:
        raise Problem(404, f"there is no such {kind}; it may have been deleted")
    await preconditions.check(conn, thing.instance_id, if_match)
    return thing


async def _audit(conn: Connection, caller: Caller, action: str, thing: Thing, detail: dict[str, object]) -> None:
    await access.audit(
        conn,
        caller.name,
        action,
        instance_id=thing.instance_id,
        subject=str(thing.id),
        detail={"name": thing.name} | detail,
    )
