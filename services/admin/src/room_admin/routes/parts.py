"""Making and changing sources and definitions one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from room_admin import preconditions
from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.edits import Draft, Edited, edit
from room_admin.preconditions import IfMatch
from room_admin.problems import FieldError, Problem
from room_admin.routes.apply import SecretValue
from room_admin.routes.changes import SwitchAnswer, SwitchRequest, switch_definition, switch_source
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.contracts.room_document import DefinitionDocument, Name
from room_common.contracts.source_config import DEDUP_SECONDS_LIMIT, MAX_SECRETS, SourceType, Verify
from room_common.postgres import listings
from room_common.postgres.access import Caller
from room_common.postgres.changes import Kind
from room_common.postgres.database import Connection, Database

router = APIRouter(tags=["changes"])

Secrets = Annotated[list[SecretValue], Field(max_length=MAX_SECRETS)]
_NEW = {"env": "GIVEN"}
"""Stands in a draft for a secret that the request brings."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NewSource(_Body):
    """A source and its definitions. ``secrets`` are values; they are stored encrypted and never shown."""

    name: Name
    type: SourceType
    enabled: bool = True
    secrets: Secrets = Field(default_factory=list)
    verify: Verify | None = Field(None, description="How a generic source is verified; others have their own way.")
    split: bool | None = None
    dedup_seconds: int | None = Field(None, ge=0, le=DEDUP_SECONDS_LIMIT)
    definitions: list[DefinitionDocument] = Field(default_factory=list, max_length=1000)


class SourceAnswer(BaseModel):
    """The new source and its URL, which is shown this once."""

    id: UUID
    name: str
    url: str


class ChangeSource(_Body):
    """What is to change; fields that are left out stay. New ``secrets`` replace those that are stored."""

    enabled: bool | None = None
    secrets: Secrets | None = None
    verify: Verify | None = None
    split: bool | None = None
    dedup_seconds: int | None = Field(None, ge=0, le=DEDUP_SECONDS_LIMIT)


class DefinitionAnswer(BaseModel):
    """The new definition."""

    id: UUID
    name: str


class ChangeDefinition(_Body):
    """What is to change; fields that are left out stay."""

    priority: int | None = Field(None, ge=0, le=1_000_000)
    match: str | None = Field(None, min_length=1, max_length=20_000)
    interpret: str | None = Field(None, max_length=20_000)
    cooldown_seconds: int | None = Field(None, ge=0, le=604_800)
    enabled: bool | None = None


@router.get("/sources/{source_id}")
async def show_source(database: DatabaseOf, _: Viewer, source_id: UUID, response: Response) -> dict[str, Any]:
    """One source, without its URL and secrets. Its ETag is the version of the room's configuration."""
    return await _shown(database, "source", source_id, response)


@router.get("/definitions/{definition_id}")
async def show_definition(database: DatabaseOf, _: Viewer, definition_id: UUID, response: Response) -> dict[str, Any]:
    """One definition. Its ETag is the version of the room's configuration."""
    return await _shown(database, "definition", definition_id, response)


@router.post("/instances/{slug}/sources", status_code=201)
async def make_source(
    request: Request, database: DatabaseOf, caller: Operator, slug: RoomSlug, body: NewSource, if_match: IfMatch = None
) -> SourceAnswer:
    """Make a source. The answer has its URL; later it takes a reveal. Audited."""
    part = body.model_dump(mode="json", exclude_none=True) | {"secrets": [_NEW] * len(body.secrets)}

    def add(draft: Draft) -> Edited:
        _refuse_taken(draft["sources"], body.name, "source", "room")
        place = ("sources", len(draft["sources"]))
        draft["sources"].append(part)
        return Edited(draft, place, secrets={body.name: body.secrets} if body.secrets else {})

    answer = await edit(request, caller, slug, if_match, add)
    async with database.transaction() as conn:
        rows = await listings.sources(conn, await room_of(conn, slug))
    made = next((row["id"] for row in rows if row["name"] == body.name), None)
    url = next((url.url for url in answer.urls if url.kind == "source" and url.name == body.name), None)
    if made is None or url is None:
        raise Problem(409, "somebody else has deleted the source meanwhile")
    return SourceAnswer(id=made, name=body.name, url=url)


@router.patch("/sources/{source_id}")
async def change_source(
    request: Request,
    database: DatabaseOf,
    caller: Operator,
    source_id: UUID,
    body: ChangeSource,
    if_match: IfMatch = None,
) -> SwitchAnswer:
    """Change a source, or switch it on or off: while it is off its deliveries are recorded and dropped. Audited.

    More than a switch replaces what is there: that takes If-Match.
    """
    sent = body.model_dump(mode="json", exclude_unset=True)
    if sent.keys() == {"enabled"} and body.enabled is not None:
        return await switch_source(database, caller, source_id, SwitchRequest(enabled=body.enabled), if_match)
    row = await _found(database, "source", source_id)
    secrets = body.secrets

    def change(draft: Draft) -> Edited:
        place, part = _named(draft["sources"], row["name"], "source")
        part |= sent
        if secrets is not None:
            part["secrets"] = [_NEW] * len(secrets)
        part = {name: value for name, value in part.items() if value is not None}
        draft["sources"][place] = part
        return Edited(draft, ("sources", place), secrets={row["name"]: secrets} if secrets else {})

    return await _changed(request, database, caller, "source", row, sent, change, if_match)


@router.post("/sources/{source_id}/definitions", status_code=201)
async def make_definition(
    request: Request,
    database: DatabaseOf,
    caller: Operator,
    source_id: UUID,
    body: DefinitionDocument,
    if_match: IfMatch = None,
) -> DefinitionAnswer:
    """Make a definition. Audited."""
    row = await _found(database, "source", source_id)

    def add(draft: Draft) -> Edited:
        place, source = _named(draft["sources"], row["name"], "source")
        definitions = source["definitions"]
        _refuse_taken(definitions, body.name, "definition", "source")
        definitions.append(body.model_dump(mode="json"))
        return Edited(draft, ("sources", place, "definitions", len(definitions) - 1))

    await edit(request, caller, row["room"], if_match, add)
    async with database.transaction() as conn:
        rows = await listings.definitions(conn, row["instance_id"])
    for made in rows:
        if made["name"] == body.name and made["source"] == row["name"]:
            return DefinitionAnswer(id=made["id"], name=body.name)
    raise Problem(409, "somebody else has deleted the definition meanwhile")


@router.patch("/definitions/{definition_id}")
async def change_definition(
    request: Request,
    database: DatabaseOf,
    caller: Operator,
    definition_id: UUID,
    body: ChangeDefinition,
    if_match: IfMatch = None,
) -> SwitchAnswer:
    """Change a definition, or switch it on or off: while it is off it is not asked. Audited.

    New texts count its version up; events that wait keep the ones they matched with. More than a switch replaces
    what is there: that takes If-Match.
    """
    sent = body.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    if sent.keys() == {"enabled"} and body.enabled is not None:
        return await switch_definition(database, caller, definition_id, SwitchRequest(enabled=body.enabled), if_match)
    row = await _found(database, "definition", definition_id)

    def change(draft: Draft) -> Edited:
        place, source = _named(draft["sources"], row["source"], "source")
        inner, part = _named(source["definitions"], row["name"], "definition")
        part |= sent
        return Edited(draft, ("sources", place, "definitions", inner))

    return await _changed(request, database, caller, "definition", row, sent, change, if_match)


async def _changed(
    request: Request,
    database: Database,
    caller: Caller,
    kind: Kind,
    row: listings.Row,
    sent: dict[str, Any],
    change: Callable[[Draft], Edited],
    if_match: str | None,
) -> SwitchAnswer:
    if not sent:
        raise Problem(422, "name a field that is to change", (FieldError(pointer="", detail="is empty"),))
    answer = await edit(request, caller, row["room"], preconditions.needed(if_match), change)
    after = await _found(database, kind, row["id"])
    return SwitchAnswer(name=row["name"], enabled=after["enabled"], changed=answer.changed)


async def _shown(database: Database, kind: Kind, row_id: UUID, response: Response) -> listings.Row:
    async with database.transaction() as conn:
        row = await _read(conn, kind, row_id)
        await preconditions.tag(conn, row["instance_id"], response)
        return row


async def _found(database: Database, kind: Kind, row_id: UUID) -> listings.Row:
    async with database.transaction() as conn:
        return await _read(conn, kind, row_id)


async def _read(conn: Connection, kind: Kind, row_id: UUID) -> listings.Row:
    row = await (listings.source if kind == "source" else listings.definition)(conn, row_id)
    if row is None:
        raise _gone(kind)
    return row


def _gone(kind: Kind) -> Problem:
    return Problem(404, f"there is no such {kind}; it may have been deleted")


def _named(parts: list[Draft], name: str, kind: Kind) -> tuple[int, Draft]:
    for place, part in enumerate(parts):
        if part["name"] == name:
            return place, part
    raise _gone(kind)


def _refuse_taken(parts: list[Draft], name: str, kind: str, owner: str) -> None:
    if any(part["name"] == name for part in parts):
        detail = f"the {owner} has a {kind} of this name"
        raise Problem(409, detail, (FieldError(pointer="/name", detail=detail),))
