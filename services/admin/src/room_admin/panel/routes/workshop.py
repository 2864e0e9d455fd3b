"""The rule workshop: writing a definition, trying it on what came in, and saving it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from room_admin.access import DatabaseOf
from room_admin.domain.form_errors import Wrong, last_priority, wrong_document, wrong_pointers
from room_admin.panel import pages
from room_admin.panel.forms import Form, Refused, go_to, read_form, taking, version_of
from room_admin.panel.sessions import Operating, Visit, VisitingOperator
from room_admin.problems import Problem
from room_admin.routes import changes
from room_admin.routes import definitions as tests
from room_admin.routes import parts as api
from room_admin.routes.definitions import DefinitionTest, DefinitionTestAnswer, TesterOf
from room_common.contracts.room_document import DefinitionDocument
from room_common.postgres import listings, panel_parts
from room_common.postgres.database import Connection

router = APIRouter()

FIELDS: Final = ("name", "match", "interpret", "cooldown_seconds", "last", "sample", "body")
LAST: Final = ("20", "50", "100", "200", "500")
_SHOWN: Final = 200
_GONE: Final = "There is no such definition; it may have been deleted."


@router.get("/sources/{source_id}/definitions/new")
async def show_new_definition(
    request: Request, database: DatabaseOf, visit: VisitingOperator, source_id: UUID
) -> Response:
    """The workshop with a new definition."""
    async with database.transaction() as conn:
        source = await _source(conn, source_id)
    return _page(request, visit, source, None, {"cooldown_seconds": "0", "enabled": "on", "last": "50"}, Wrong())


@router.get("/sources/{source_id}/definitions/{definition_id}")
async def show_definition(
    request: Request, database: DatabaseOf, visit: VisitingOperator, source_id: UUID, definition_id: UUID
) -> Response:
    """The workshop with a definition."""
    async with database.transaction() as conn:
        source = await _source(conn, source_id)
    seen = await version_of(database, source["room"])
    async with database.transaction() as conn:
        row = await _definition_row(conn, source_id, definition_id)
    values = {name: str(row[name]) for name in ("name", "match", "interpret", "cooldown_seconds")}
    values |= {"enabled": "on" if row["enabled"] else "", "seen": seen, "last": "50"}
    return _page(request, visit, source, row, values, Wrong())


@router.post("/sources/{source_id}/definitions/try")
async def try_definition(
    request: Request, database: DatabaseOf, tester: TesterOf, visit: Operating, source_id: UUID
) -> Response:
    """What the definition in the form would say, by the API's own test."""
    form = await read_form(request)
    async with database.transaction() as conn:
        source = await _source(conn, source_id)
    try:
        answer = await tests.test_definition(database, tester, visit.caller, _test(form, source))
    except Refused as refused:
        return pages.page(request, "tried.html", visit, 422, answer=None, wrong=refused.wrong)
    except Problem as error:
        if error.status not in (422, 429, 503):
            raise
        wrong = wrong_pointers(error.detail, [(one.pointer, one.detail) for one in error.errors], ())
        return pages.page(request, "tried.html", visit, error.status, answer=None, wrong=wrong)
    return pages.page(request, "tried.html", visit, answer=answer, rows=_interesting(answer), wrong=Wrong())


@router.post("/sources/{source_id}/definitions/save")
async def save_definition(
    request: Request, database: DatabaseOf, visit: Operating, source_id: UUID, id: UUID | None = None
) -> Response:
    """Make the definition, or change the one with that id."""
    form = await read_form(request)
    async with database.transaction() as conn:
        source = await _source(conn, source_id)
        row = None if id is None else await _definition_row(conn, source_id, id)
        others = await listings.definitions(conn, source["instance_id"])
    values = _values(form)
    try:
        with taking(FIELDS):
            if row is None:
                asked = (one for one in others if one["source"] == source["name"])
                new = DefinitionDocument.model_validate(
                    values | {"name": form.text("name"), "priority": last_priority(asked)}
                )
                await api.make_definition(request, database, visit.caller, source_id, new)
            else:
                changed = api.ChangeDefinition.model_validate(values)
                await api.change_definition(request, database, visit.caller, row["id"], changed, form.text("seen"))
    except Refused as refused:
        named = form.shown() | ({} if row is None else {"name": row["name"]})
        return _page(request, visit, source, row, named, refused.wrong)
    return go_to(f"/panel/rooms/{source['room']}#source-{source_id}")


@router.post("/sources/{source_id}/definitions/{definition_id}/delete")
async def delete_definition(database: DatabaseOf, visit: Operating, source_id: UUID, definition_id: UUID) -> Response:
    """Delete a definition."""
    async with database.transaction() as conn:
        source = await _source(conn, source_id)
    await changes.delete_definition(database, visit.caller, definition_id)
    return go_to(f"/panel/rooms/{source['room']}#source-{source_id}")


async def _source(conn: Connection, source_id: UUID) -> dict[str, Any]:
    found = await panel_parts.source(conn, source_id)
    if found is None:
        raise Problem(404, "There is no such source; it may have been deleted.")
    return found


async def _definition_row(conn: Connection, source_id: UUID, definition_id: UUID) -> dict[str, Any]:
    found = await panel_parts.definition(conn, source_id, definition_id)
    if found is None:
        raise Problem(404, _GONE)
    return found


def _values(form: Form) -> dict[str, Any]:
    return {
        "match": form.text("match"),
        "interpret": form.text("interpret"),
        "cooldown_seconds": form.text("cooldown_seconds") or "0",
        "enabled": form.on("enabled"),
    }


def _test(form: Form, source: Mapping[str, Any]) -> DefinitionTest:
    """What to ask, and of what. A definition that has no name yet is tried under one that none has."""
    definition = _values(form) | {"name": form.text("name") or "(new)"}
    what: dict[str, Any] = {"definition": definition, "source": str(source["id"])}
    if form.text("of") == "sample":
        what["sample"] = {"body": form.text("sample")}
        if not form.text("sample"):
            raise Refused(Wrong(general=("Paste a payload to try it on.",)))
    else:
        what["last"] = form.text("last") or "50"
    try:
        return DefinitionTest.model_validate(what)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        wrong = wrong_document([dict(one) for one in found], FIELDS)
        said = tuple(f"{name.replace('_', ' ').capitalize()}: {text}" for name, text in wrong.fields.items())
        raise Refused(Wrong(general=(*said, *wrong.general))) from None


def _interesting(answer: DefinitionTestAnswer) -> list[Any]:
    """The items as they are shown: those whose verdict changes first, then those that match; bounded."""
    return sorted(answer.items, key=lambda item: (not item.changed, item.after != "yes", item.error is None))[:_SHOWN]


def _page(
    request: Request,
    visit: Visit,
    source: Mapping[str, Any],
    definition: Mapping[str, Any] | None,
    values: Mapping[str, str],
    wrong: Wrong,
) -> Response:
    return pages.page(
        request,
        "workshop.html",
        visit,
        wrong.status,
        source=source,
        definition=definition,
        values=values,
        wrong=wrong,
        choices=LAST,
    )
