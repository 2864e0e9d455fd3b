"""Making an instance match its document, and the document of an instance."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from room_admin.access import Operator
from room_admin.apply import Applied, Applier
from room_admin.domain.difference import changed
from room_admin.domain.stored_secrets import NotStored, Secrets
from room_admin.preconditions import IfMatch, IfNoneMatch
from room_admin.problems import FieldError, Problem, pointer
from room_admin.routes.instances import RoomSlug
from room_common.contracts.room_document import RoomDocument
from room_common.contracts.source_config import MAX_SECRETS, unusable_secrets
from room_common.errors import Refused

router = APIRouter(tags=["apply"])

SecretValue = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class ApplyRequest(BaseModel):
    """A room document, and the secrets that its references stand for; those that are ``stored`` need no value."""

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
async def apply(
    request: Request, body: ApplyRequest, caller: Operator, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> ApplyAnswer:
    """Make an instance match the document. Idempotent: a second time changes nothing."""
    _check_secrets(body)
    _check_channel_secrets(body)
    _check_tool_secrets(body)
    applier: Applier = request.app.state.applier
    given = Secrets(body.secrets, body.channel_secrets, body.tool_secrets)
    try:
        applied = await applier.apply(
            body.room, given, caller, dry_run=body.dry_run, if_match=if_match, new=if_none_match is not None
        )
    except ValidationError as error:
        raise Problem(
            422,
            "the secrets do not fit the channel",
            tuple(
                FieldError(pointer=pointer(("body", "channel_secrets", item["loc"][-1])), detail=item["msg"])
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            ),
        ) from None
    except NotStored as error:
        place = pointer(("body", "room", *error.place))
        raise Problem(422, "a secret is missing", (FieldError(pointer=place, detail=str(error)),)) from None
    except Refused as error:
        raise Problem(422, str(error), (FieldError(pointer="/room/timezone", detail=str(error)),)) from None
    return _answer(applied, dry_run=body.dry_run)


class ExportAnswer(BaseModel):
    """A room document whose secrets are references to what is stored."""

    room: RoomDocument


@router.get("/instances/{slug}/export")
async def export(request: Request, slug: RoomSlug, _: Operator) -> ExportAnswer:
    """The document that makes an instance what it is: applying it changes nothing. It holds no secret."""
    applier: Applier = request.app.state.applier
    try:
        document = await applier.export(slug)
    except Refused as error:
        raise Problem(409, str(error)) from None
    if document is None:
        raise Problem(404, f"there is no room {slug!r}")
    return ExportAnswer(room=document)


def _check_secrets(body: ApplyRequest) -> None:
    wanted = {
        source.name: sum(reference.stored is None for reference in source.secrets) for source in body.room.sources
    }
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
    wanted = {tool.name for tool in body.room.tools if tool.secret is not None and tool.secret.stored is None}
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


def _check_channel_secrets(body: ApplyRequest) -> None:
    channel = body.room.channel
    references = channel.secrets if channel is not None else {}
    wanted = {name for name, reference in references.items() if reference.stored is None}
    errors = tuple(
        FieldError(pointer=pointer(("body", "channel_secrets", name)), detail=detail)
        for names, detail in (
            (body.channel_secrets.keys() - wanted, "the channel refers to no secret of this name"),
            (wanted - body.channel_secrets.keys(), "the channel needs this secret"),
        )
        for name in sorted(names)
    )
    if errors:
        raise Problem(422, "the secrets do not fit the channel", errors)


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
