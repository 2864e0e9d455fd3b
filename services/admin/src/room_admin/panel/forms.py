"""Forms: reading what a browser posts, and saying what the API found wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from room_admin.domain.form_errors import Wrong, wrong_document, wrong_pointers
from room_admin.preconditions import etag
from room_admin.problems import Problem
from room_admin.routes.parameters import room_of
from room_common.postgres import versions
from room_common.postgres.database import Database

MAX_FORM: Final = 262_144
_MAX_FIELDS: Final = 100

CHANGED: Final = "Somebody else has changed this meanwhile. Load the page again; what you wrote is below, to copy."


class Refused(Exception):
    """A form that was not taken, and why."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__("a form was not taken")
        self.wrong = wrong


@dataclass(frozen=True, slots=True)
class Form:
    """What was posted. Secrets may be among the values."""

    values: Mapping[str, tuple[str, ...]] = field(repr=False)

    def text(self, name: str, default: str = "") -> str:
        """The last value of a field, without space around it."""
        found = self.values.get(name)
        return found[-1].replace("\r\n", "\n").strip() if found else default

    def all(self, name: str) -> list[str]:
        """Every value of a field that is not empty."""
        return [value.strip() for value in self.values.get(name, ()) if value.strip()]

    def on(self, name: str) -> bool:
        """Whether a checkbox is ticked."""
        return self.text(name) == "on"

    def shown(self, secrets: Iterable[str] = ()) -> dict[str, str]:
        """The values to draw the form with once more. Secrets have to be pasted again."""
        hidden = frozenset(secrets)
        return {name: self.text(name) for name in self.values if name not in hidden}


async def read_form(request: Request) -> Form:
    """The form of a request. Raises ``Problem``."""
    body = await request.body()
    if len(body) > MAX_FORM:
        raise Problem(413, "This form is larger than any that the panel sends.")
    try:
        values = parse_qs(body.decode("ascii"), max_num_fields=_MAX_FIELDS, keep_blank_values=True, errors="strict")
    except ValueError:
        raise Problem(400, "This is not a form.") from None
    return Form({name: tuple(found) for name, found in values.items()})


@contextmanager
def taking(fields: Iterable[str]) -> Iterator[None]:
    """What the API finds wrong with a form becomes :class:`Refused`, in terms of the form's ``fields``."""
    known = tuple(fields)
    try:
        yield
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise Refused(wrong_document([dict(one) for one in found], known)) from None
    except Problem as error:
        if error.status == HTTPStatus.PRECONDITION_FAILED:
            raise Refused(Wrong(general=(CHANGED,))) from None
        if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise
        places = [(one.pointer, one.detail) for one in error.errors]
        raise Refused(wrong_pointers(error.detail, places, known)) from None


async def version_of(database: Database, slug: str) -> str:
    """What a form remembers of the room that it was drawn from: the ETag that its change is made for."""
    async with database.transaction() as conn:
        return etag(await versions.version_of(conn, await room_of(conn, slug)))


def go_to(path: str) -> Response:
    """Lead the browser on after a form that was taken."""
    return Response(headers={"HX-Redirect": path})
