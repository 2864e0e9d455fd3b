"""Making a room, and changing what belongs to all of it: its settings, prompt, channel and outside tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from room_admin import preconditions
from room_admin.access import DatabaseOf, Operator
from room_admin.edits import Draft, Edited, apply_draft, edit
from room_admin.preconditions import IfMatch
from room_admin.problems import FieldError, Problem
from room_admin.routes.apply import ApplyAnswer, SecretValue
from room_admin.routes.changes import SwitchAnswer, SwitchRequest, switch_room
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_admin.routes.rooms import ToolSlug
from room_admin.spending import spends
from room_common.contracts.channel_config import CHANNEL_SECRETS, MAX_ALLOWED, ChannelType
from room_common.contracts.room_document import Line, Name, Prose, Slug
from room_common.contracts.tool_config import ToolKind, ToolName
from room_common.postgres import access, configuration, listings, outbox
from room_common.postgres.access import Caller
from room_common.postgres.database import Connection, Database

router = APIRouter(tags=["changes"])

MAX_SECTIONS = 50
Locale = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NewRoom(_Body):
    """A room without a channel and sources, which are made afterwards."""

    name: Name
    slug: Slug
    mandate: Prose = ""
    timezone: str = Field("UTC", max_length=64, description="A name of the IANA time zone database.")
    enabled: bool = True


class RoomAnswer(BaseModel):
    """The new room."""

    id: UUID
    slug: str


class ChangeRoom(_Body):
    """What is to change; fields that are left out stay."""

    enabled: bool | None = None
    name: Name | None = None
    mandate: Prose | None = None
    timezone: str | None = Field(None, max_length=64)
    locale: Locale | None = None
    token_budget_daily: int | None = Field(
        None, ge=0, lt=1 << 53, description="Tokens of a day in the room's timezone; null: no limit."
    )


class Section(_Body):
    """A named part of what the agent is told besides its mandate."""

    name: Name
    text: Prose


class Prompts(_Body):
    """The sections, in the order in which the agent reads them."""

    sections: list[Section] = Field(max_length=MAX_SECTIONS)


class Channel(_Body):
    """Whom the agent talks to. Secrets that are left out stay, as long as the type does."""

    type: ChannelType
    target: Annotated[Line, StringConstraints(max_length=2000)]
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    sender: str | None = Field(None, max_length=40, description="whatsapp: the number that messages come from.")
    allow: list[Annotated[Line, StringConstraints(max_length=200)]] = Field(
        default_factory=list, max_length=MAX_ALLOWED
    )
    secrets: dict[str, SecretValue] = Field(default_factory=dict, description="The credentials' values, by name.")


class ChannelAnswer(BaseModel):
    """``url``: where the provider posts replies to, shown this once; null where there is none or it has one."""

    changed: bool
    url: str | None


class TestMessage(_Body):
    """What to write."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)] = "A test from Room."


class TestAnswer(BaseModel):
    """The message; GET /messages/{id} tells what becomes of it."""

    id: UUID


class Tool(_Body):
    """A server that speaks MCP, or an installed Python function. A secret that is left out stays while the URL does."""

    type: ToolKind
    enabled: bool = True
    url: str | None = Field(None, max_length=2000)
    allow: list[ToolName] = Field(default_factory=list, max_length=100)
    verified_only: bool | list[ToolName] = False
    secret: SecretValue | None = None
    header: str | None = Field(None, max_length=200)
    prefix: str | None = Field(None, max_length=200)


class ChangedAnswer(BaseModel):
    """``changed`` is false when it was so already."""

    changed: bool


@router.post("/instances", status_code=201)
async def make_room(request: Request, database: DatabaseOf, caller: Operator, body: NewRoom) -> RoomAnswer:
    """Make a room. Audited."""
    try:
        await apply_draft(request, caller, Edited({"version": 1} | body.model_dump(mode="json")), None, "*")
    except Problem as error:
        if error.status != 412:
            raise
        raise Problem(409, "there is a room of this slug", (FieldError(pointer="/slug", detail="is taken"),)) from None
    async with database.transaction() as conn:
        return RoomAnswer(id=await room_of(conn, body.slug), slug=body.slug)


@router.patch("/instances/{slug}")
async def change_room(
    request: Request, database: DatabaseOf, caller: Operator, slug: RoomSlug, body: ChangeRoom, if_match: IfMatch = None
) -> SwitchAnswer:
    """Change a room, or switch it on or off; on also frees one that was parked for its failures. Audited.

    More than a switch replaces what is there: that takes If-Match.
    """
    sent = body.model_dump(mode="json", exclude_unset=True)
    sent = {name: value for name, value in sent.items() if value is not None or name == "token_budget_daily"}
    if sent.keys() == {"enabled"} and body.enabled is not None:
        return await switch_room(database, caller, slug, SwitchRequest(enabled=body.enabled), if_match)
    if not sent:
        raise Problem(422, "name a field that is to change", (FieldError(pointer="", detail="is empty"),))
    if_match = preconditions.needed(if_match)
    beside: dict[str, Any] = {name: sent.pop(name) for name in ("locale", "token_budget_daily") if name in sent}
    changed = False
    if sent:
        changed = (await edit(request, caller, slug, if_match, lambda draft: Edited(draft | sent))).changed
        if_match = "*"  # it matched, and is another version now
    if beside:
        changed = await _set(database, caller, slug, beside, if_match) or changed
    async with database.transaction() as conn:
        row = await listings.room(conn, await room_of(conn, slug))
    assert row is not None
    return SwitchAnswer(name=slug, enabled=row["enabled"], changed=changed)


@router.get("/instances/{slug}/prompts")
async def show_prompts(database: DatabaseOf, _: Operator, slug: RoomSlug, response: Response) -> Prompts:
    """The sections of a room's prompt."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        await preconditions.tag(conn, instance, response)
        return Prompts(sections=(await configuration.read_settings(conn, instance))["prompts"])


@router.put("/instances/{slug}/prompts")
async def change_prompts(
    database: DatabaseOf, caller: Operator, slug: RoomSlug, body: Prompts, if_match: IfMatch = None
) -> ChangedAnswer:
    """Replace the sections of a room's prompt. Takes If-Match. Audited."""
    sections = body.model_dump(mode="json")["sections"]
    changed = await _set(database, caller, slug, {"prompts": sections}, preconditions.needed(if_match))
    return ChangedAnswer(changed=changed)


@router.put("/instances/{slug}/channel")
async def set_channel(
    request: Request, caller: Operator, slug: RoomSlug, body: Channel, if_match: IfMatch = None
) -> ChannelAnswer:
    """Say whom the agent talks to. Takes If-Match. Audited."""
    part = body.model_dump(mode="json", exclude_none=True, exclude={"secrets"})

    def change(draft: Draft) -> Edited:
        before = draft.get("channel") or {}
        stored = before.get("secrets", {}) if before.get("type") == body.type else {}
        references = {name: stored[name] for name in CHANNEL_SECRETS[body.type] if name in stored}
        references |= {name: {"env": "GIVEN"} for name in body.secrets}
        draft["channel"] = part | {"secrets": references}
        return Edited(draft, ("channel",), channel_secrets=body.secrets)

    answer = await edit(request, caller, slug, preconditions.needed(if_match), change)
    return ChannelAnswer(changed=answer.changed, url=next((u.url for u in answer.urls if u.kind == "channel"), None))


@router.delete("/instances/{slug}/channel")
async def remove_channel(request: Request, caller: Operator, slug: RoomSlug, if_match: IfMatch = None) -> ChangedAnswer:
    """Have the agent talk to nobody. Audited."""
    return _only_changed(await edit(request, caller, slug, if_match, lambda draft: Edited(draft | {"channel": None})))


@router.post("/instances/{slug}/channel/test", dependencies=[spends("write")])
async def send_test(database: DatabaseOf, caller: Operator, slug: RoomSlug, body: TestMessage) -> TestAnswer:
    """Write to the person whom the agent talks to, by the way its messages go. Audited."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        room = await listings.room(conn, instance)
        if room is None or room["channel"] is None:
            raise Problem(409, "the room has no channel")
        message = await outbox.enqueue(conn, instance, room["channel"], room["target"], body.text)
        await access.audit(conn, caller.name, "test_channel", instance_id=instance, subject=str(message))
    return TestAnswer(id=message)


@router.put("/instances/{slug}/tools/{name}")
async def set_tool(
    request: Request, caller: Operator, slug: RoomSlug, name: ToolSlug, body: Tool, if_match: IfMatch = None
) -> ChangedAnswer:
    """Give a room an outside tool, or change it. Takes If-Match. Audited."""
    part = {"name": name} | body.model_dump(mode="json", exclude_none=True, exclude={"secret"})
    given = {} if body.secret is None else {name: body.secret}

    def change(draft: Draft) -> Edited:
        place = next((i for i, tool in enumerate(draft["tools"]) if tool["name"] == name), len(draft["tools"]))
        before = draft["tools"][place] if place < len(draft["tools"]) else {}
        kept = before.get("secret") if before.get("url") == body.url else None
        secret = {"env": "GIVEN"} if given else kept
        draft["tools"][place : place + 1] = [part | ({} if secret is None else {"secret": secret})]
        return Edited(draft, ("tools", place), tool_secrets=given)

    return _only_changed(await edit(request, caller, slug, preconditions.needed(if_match), change))


@router.delete("/instances/{slug}/tools/{name}")
async def remove_tool(
    request: Request, caller: Operator, slug: RoomSlug, name: ToolSlug, if_match: IfMatch = None
) -> ChangedAnswer:
    """Take an outside tool away from a room. Audited."""

    def change(draft: Draft) -> Edited:
        left = [tool for tool in draft["tools"] if tool["name"] != name]
        if len(left) == len(draft["tools"]):
            raise Problem(404, f"the room {slug!r} has no tool {name!r}")
        return Edited(draft | {"tools": left})

    return _only_changed(await edit(request, caller, slug, if_match, change))


def _only_changed(answer: ApplyAnswer) -> ChangedAnswer:
    return ChangedAnswer(changed=answer.changed)


async def _set(database: Database, caller: Caller, slug: str, values: dict[str, Any], if_match: str) -> bool:
    """Replace settings that are not in a room's document. Returns whether anything is different now."""
    async with database.transaction() as conn:
        await configuration.lock_slug(conn, slug)
        instance = await room_of(conn, slug)
        await preconditions.check(conn, instance, if_match)
        return await _write(conn, caller, slug, instance, values)


async def _write(conn: Connection, caller: Caller, slug: str, instance: UUID, values: dict[str, Any]) -> bool:
    before = await configuration.read_settings(conn, instance)
    after = before | values
    if after == before:
        return False
    await configuration.write_settings(conn, instance, **after)
    detail = {"fields": sorted(name for name in values if before[name] != after[name])}
    await access.audit(conn, caller.name, "change_settings", instance_id=instance, subject=slug, detail=detail)
    return True
