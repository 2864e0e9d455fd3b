"""Changing one part of a room: its document is read, the part replaced, and the document applied, all or nothing.

So every rule of a room document holds for single changes too, and there is one place that writes configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fastapi import Request
from pydantic import ValidationError

from room_admin import preconditions
from room_admin.access import database_of
from room_admin.problems import FieldError, Problem, pointer
from room_admin.routes import apply as documents
from room_admin.routes.apply import ApplyAnswer, ApplyRequest
from room_admin.routes.parameters import room_of
from room_common.contracts.room_document import RoomDocument
from room_common.postgres import versions
from room_common.postgres.access import Caller

Draft = dict[str, Any]
_TRIES: Final = 3
_SECRET_FIELDS: Final = ("secrets", "channel_secrets", "tool_secrets")


@dataclass(frozen=True, slots=True)
class Edited:
    """A changed draft. ``place`` is where the part is that the caller sent, so that errors point into what they sent;
    the secrets are values of references that are not stored yet."""

    draft: Draft
    place: tuple[str | int, ...] = ()
    secrets: Mapping[str, list[str]] = field(default_factory=dict, repr=False)
    channel_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    tool_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


async def edit(
    request: Request, caller: Caller, slug: str, if_match: str | None, change: Callable[[Draft], Edited]
) -> ApplyAnswer:
    """Apply what ``change`` makes of a room's document.

    Raises ``Problem``: 404, 409 when a stored config can't be decrypted, 412, 422. Without ``if_match`` a change that
    somebody else makes meanwhile is kept: the document is read again.
    """
    tries = 1 if if_match is not None and if_match.strip() != "*" else _TRIES
    for left in reversed(range(tries)):
        async with database_of(request).transaction() as conn:
            instance = await room_of(conn, slug)
            await preconditions.check(conn, instance, if_match)
            seen = preconditions.etag(await versions.version_of(conn, instance))
        document = (await documents.export(request, slug, caller)).room
        edited = change(document.model_dump(mode="json", exclude_none=True))
        try:
            return await apply_draft(request, caller, edited, seen)
        except Problem as error:
            if error.status != 412 or not left:
                raise
    raise AssertionError("the last try returns or raises")


async def apply_draft(
    request: Request, caller: Caller, edited: Edited, if_match: str | None, if_none_match: Literal["*"] | None = None
) -> ApplyAnswer:
    """Apply a draft. Raises ``Problem`` whose pointers are those of the part that the caller sent."""
    try:
        body = ApplyRequest(
            room=RoomDocument.model_validate(edited.draft),
            secrets=dict(edited.secrets),
            channel_secrets=dict(edited.channel_secrets),
            tool_secrets=dict(edited.tool_secrets),
            dry_run=False,
        )
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        places = [
            (pointer(("body", "room", *item["loc"])), item["msg"].removeprefix("Value error, ")) for item in found
        ]
        raise _moved("some fields are not valid", places, edited) from None
    try:
        return await documents.apply(request, body, caller, if_match, if_none_match)
    except Problem as error:
        if error.status != 422:
            raise
        raise _moved(error.detail, [(one.pointer, one.detail) for one in error.errors], edited) from None


def _moved(detail: str, places: Sequence[tuple[str, str]], edited: Edited) -> Problem:
    prefix = pointer(("body", "room", *edited.place))
    return Problem(422, detail, tuple(FieldError(pointer=_local(place, prefix), detail=text) for place, text in places))


def _local(place: str, prefix: str) -> str:
    """A pointer into the document as one into the part; what is elsewhere belongs to the part as a whole."""
    if place == prefix or place.startswith(prefix + "/"):
        return place[len(prefix) :]
    _, _, rest = place.partition("/")
    field_name, _, rest = rest.partition("/")
    if field_name == "channel_secrets":
        return f"/secrets/{rest}"
    if field_name == "secrets":
        return "/secrets" + rest[len(rest.partition("/")[0]) :]
    return "/secret" if field_name in _SECRET_FIELDS else ""
