"""Making an instance match its document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from room_admin.access import Operator
from room_admin.apply import Applied, Applier, channel_config_of
from room_admin.domain.difference import changed
from room_admin.problems import FieldError, Problem, pointer
from room_admin.tool_rows import tool_configs_of
from room_common.contracts.channel_config import CHANNEL_SECRETS, ChannelConfig
from room_common.contracts.room_document import RoomDocument
from room_common.contracts.source_config import MAX_SECRETS, unusable_secrets
from room_common.errors import Refused

router = APIRouter(tags=["apply"])

SecretValue = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class ApplyRequest(BaseModel):
    """A room document, and the secrets that its references stand for."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    room: RoomDocument
    secrets: dict[str, Annotated[list[SecretValue], Field(max_length=MAX_SECRETS)]] = Field(
        default_factory=dict, description="The values of each source's secrets, by the source's name."
    )
    channel_secrets: dict[str, SecretValue] = Field(
        default_factory=dict, description="The values of the channel's secrets, by their names."
    )
    tool_secrets: dict[str, SecretValue] = Field(
        default_factory=dict, description="The values of the tools' secrets, by the tool's name."
    )
    dry_run: bool = Field(False, description="Only say what would change.")


class FieldChangeOut(BaseModel):
    """One field of a change."""

    field: str
    before: Any
    after: Any


class ChangeOut(BaseModel):
    """What happens to one thing."""

    kind: Literal["room", "channel", "source", "definition", "tool"]
    name: str
    action: Literal["create", "update", "delete", "unchanged"]
    fields: list[FieldChangeOut]


class UrlOut(BaseModel):
    """A URL made just now, shown this once."""

    kind: Literal["source", "channel"]
    name: str
    url: str


class ApplyAnswer(BaseModel):
    """The difference, and whether it was carried out."""

    changed: bool
    applied: bool
    changes: list[ChangeOut]
    urls: list[UrlOut]


@router.post("/apply")
async def apply(request: Request, body: ApplyRequest, caller: Operator) -> ApplyAnswer:
    """Make an instance match the document. Idempotent: a second time changes nothing."""
    _check_secrets(body)
    _check_tool_secrets(body)
    channel_config = _channel_config(body)
    applier: Applier = request.app.state.applier
    try:
        applied = await applier.apply(
            body.room,
            body.secrets,
            caller,
            dry_run=body.dry_run,
            channel_config=channel_config,
            tool_configs=tool_configs_of(body.room, body.tool_secrets),
        )
    except Refused as error:
        raise Problem(422, str(error), (FieldError(pointer="/room/timezone", detail=str(error)),)) from None
    return _answer(applied, dry_run=body.dry_run)


def _check_secrets(body: ApplyRequest) -> None:
    wanted = {source.name: len(source.secrets) for source in body.room.sources}
    errors = [
        FieldError(pointer=pointer(("body", "secrets", name)), detail="the document has no source of this name")
        for name in body.secrets
        if name not in wanted
    ]
    errors += [
        FieldError(
            pointer=pointer(("body", "secrets", name)),
            detail=f"the source refers to {count} secret(s), {given} given",
        )
        for name, count in wanted.items()
        if (given := len(body.secrets.get(name, ()))) != count
    ]
    errors += [
        FieldError(pointer=pointer(("body", "secrets", source.name, number)), detail=problem)
        for source in body.room.sources
        for number, problem in unusable_secrets(source.type, body.secrets.get(source.name, ()))
    ]
    if errors:
        raise Problem(422, "the secrets do not fit the document", tuple(errors))


def _check_tool_secrets(body: ApplyRequest) -> None:
    wanted = {tool.name for tool in body.room.tools if tool.secret is not None}
    errors = [
        FieldError(pointer=pointer(("body", "tool_secrets", name)), detail=detail)
        for names, detail in (
            (body.tool_secrets.keys() - wanted, "no tool of this name refers to a secret"),
            (wanted - body.tool_secrets.keys(), "the tool refers to a secret that is not given"),
        )
        for name in sorted(names)
    ]
    errors += [
        FieldError(pointer=pointer(("body", "tool_secrets", name)), detail="has characters that no header can carry")
        for name, value in body.tool_secrets.items()
        if not (value.isascii() and value.isprintable())
    ]
    if errors:
        raise Problem(422, "the secrets do not fit the tools", tuple(errors))


def _channel_config(body: ApplyRequest) -> ChannelConfig | None:
    wanted = CHANNEL_SECRETS[body.room.channel.type] if body.room.channel is not None else ()
    errors = [
        FieldError(pointer=pointer(("body", "channel_secrets", name)), detail=detail)
        for names, detail in (
            (body.channel_secrets.keys() - set(wanted), "the channel has no secret of this name"),
            (set(wanted) - body.channel_secrets.keys(), "the channel needs this secret"),
        )
        for name in sorted(names)
    ]
    if not errors:
        try:
            return channel_config_of(body.room, body.channel_secrets)
        except ValidationError as error:
            errors = [
                FieldError(pointer=pointer(("body", "channel_secrets", item["loc"][-1])), detail=item["msg"])
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            ]
    raise Problem(422, "the secrets do not fit the channel", tuple(errors))


def _answer(applied: Applied, *, dry_run: bool) -> ApplyAnswer:
    something = changed(applied.changes)
    return ApplyAnswer(
        changed=something,
        applied=something and not dry_run,
        changes=[
            ChangeOut(
                kind=change.kind,
                name=change.name,
                action=change.action,
                fields=[FieldChangeOut(field=f.field, before=f.before, after=f.after) for f in change.fields],
            )
            for change in applied.changes
        ],
        urls=[UrlOut.model_validate(url, from_attributes=True) for url in applied.urls],
    )
