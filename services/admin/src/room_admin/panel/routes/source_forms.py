"""Making, connecting, changing and deleting a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.domain.form_errors import Wrong
from room_admin.domain.providers import CAUSES, PROVIDERS
from room_admin.edits import Draft, Edited, edit
from room_admin.panel import pages
from room_admin.panel.forms import Form, Refused, go_to, read_form, taking, version_of
from room_admin.panel.sessions import Operating, Visit, Visiting, VisitingOperator
from room_admin.problems import Problem
from room_admin.routes import apply as documents
from room_admin.routes import changes
from room_admin.routes import parts as api
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.contracts.room_document import SourceDocument
from room_common.contracts.source_config import SOURCE_TYPES, SourceType
from room_common.postgres import listings, panel_parts
from room_common.postgres.database import Database

router = APIRouter()

FIELDS: Final = ("name", "secret", "header", "prefix", "algorithm", "encoding", "dedup_seconds", "split", "verify")
_GONE: Final = "There is no such source; it may have been deleted."
_NEW: Final = {"env": "GIVEN"}
_MAX_NUMBER: Final = 1000


@router.get("/rooms/{slug}/sources/new")
async def show_new_source(
    request: Request, database: DatabaseOf, visit: VisitingOperator, slug: RoomSlug, type: str = ""
) -> Response:
    """Choosing a provider, then the form of a source of it."""
    async with database.transaction() as conn:
        taken = {row["name"] for row in await listings.sources(conn, await room_of(conn, slug))}
    if not type:
        return pages.page(request, "source_types.html", visit, slug=slug, providers=PROVIDERS)
    kind = _kind(type)
    names = (kind, *(f"{kind}-{number}" for number in range(2, _MAX_NUMBER)))
    name = next((name for name in names if name not in taken), "")
    return _form_page(request, visit, slug, kind, None, {"name": name, "verify": "none"}, Wrong())


@router.post("/rooms/{slug}/sources/new")
async def make_source(request: Request, database: DatabaseOf, visit: Operating, slug: RoomSlug, type: str) -> Response:
    """Make a source; its own page shows the URL."""
    form, kind = await read_form(request), _kind(type)
    secret = form.text("secret")
    values = {"name": form.text("name"), "type": kind, "secrets": [secret] if secret else []} | _settings(form, kind)
    try:
        with taking(FIELDS):
            body = api.NewSource.model_validate(values)
            made = await api.make_source(request, database, visit.caller, slug, body)
    except Refused as refused:
        return _form_page(request, visit, slug, kind, None, form.shown({"secret"}), refused.wrong)
    return go_to(f"/panel/sources/{made.id}?new=true")


@router.get("/sources/{source_id}")
async def show_source(
    request: Request, database: DatabaseOf, visit: Visiting, source_id: UUID, new: bool = False
) -> Response:
    """Connecting a source: its URL, its secret, what came in last, and why something did not verify."""
    source = await _source(database, source_id)
    async with database.transaction() as conn:
        failures = await panel_parts.signature_failures(conn, source_id)
        definitions = await listings.definitions(conn, source["instance_id"])
    return pages.page(
        request,
        "source.html",
        visit,
        source=source,
        provider=PROVIDERS[_kind(source["type"])],
        failures=failures,
        causes=CAUSES,
        definitions=[row for row in definitions if row["source"] == source["name"]],
        new=new,
    )


@router.get("/sources/{source_id}/edit")
async def show_source_form(
    request: Request, database: DatabaseOf, visit: VisitingOperator, source_id: UUID
) -> Response:
    """The settings of a source."""
    row = await _source(database, source_id)
    seen = await version_of(database, row["room"])
    row["document"] = await _document(request, visit, row)
    values = _values(row["document"]) | {"seen": seen}
    return _form_page(request, visit, row["room"], _kind(row["type"]), row, values, Wrong())


@router.post("/sources/{source_id}/edit")
async def change_source(request: Request, database: DatabaseOf, visit: Operating, source_id: UUID) -> Response:
    """Change a source: its secret, how it is verified, whether arrays are split, what counts as a duplicate."""
    form = await read_form(request)
    row = await _source(database, source_id)
    kind, secret = _kind(row["type"]), form.text("secret")

    def change(draft: Draft) -> Edited:
        place = next((at for at, one in enumerate(draft["sources"]) if one["name"] == row["name"]), None)
        if place is None:
            raise Problem(404, _GONE)
        before = draft["sources"][place]
        kept = {name: value for name, value in before.items() if name not in ("verify", "split", "dedup_seconds")}
        stored = [] if form.text("keep") == "drop" or (secret and form.text("keep") == "replace") else before["secrets"]
        kept["secrets"] = [_NEW, *stored] if secret else stored
        draft["sources"][place] = kept | _settings(form, kind)
        return Edited(draft, ("sources", place), secrets={row["name"]: [secret]} if secret else {})

    try:
        with taking(FIELDS):
            await edit(request, visit.caller, row["room"], form.text("seen"), change)
    except Refused as refused:
        row["document"] = await _document(request, visit, row)
        values = form.shown({"secret"}) | {"name": row["name"]}
        return _form_page(request, visit, row["room"], kind, row, values, refused.wrong)
    return go_to(f"/panel/sources/{source_id}")


@router.post("/sources/{source_id}/delete")
async def delete_source(request: Request, database: DatabaseOf, visit: Operating, source_id: UUID) -> Response:
    """Delete a source with its definitions, once its name was written out."""
    form = await read_form(request)
    row = await _source(database, source_id)
    if form.text("sure") != row["name"]:
        raise Problem(422, f"Write the name, {row['name']}, to say that this source is meant.")
    await changes.delete_source(database, visit.caller, source_id)
    return go_to(f"/panel/rooms/{row['room']}")


async def _source(database: Database, source_id: UUID) -> dict[str, Any]:
    async with database.transaction() as conn:
        found = await panel_parts.source(conn, source_id)
    if found is None:
        raise Problem(404, _GONE)
    return found


async def _document(request: Request, visit: Visit, row: Mapping[str, Any]) -> SourceDocument:
    room = (await documents.export(request, row["room"], visit.caller)).room
    found = next((source for source in room.sources if source.name == row["name"]), None)
    if found is None:
        raise Problem(404, _GONE)
    return found


def _kind(text: str) -> SourceType:
    for kind in SOURCE_TYPES:
        if kind == text:
            return kind
    raise Problem(422, f"A source is one of: {', '.join(SOURCE_TYPES)}.")


def _settings(form: Form, kind: SourceType) -> dict[str, Any]:
    """What a form says of a source besides its name and secrets. What it leaves open is not in it."""
    found: dict[str, Any] = {}
    if form.text("split") in ("yes", "no"):
        found["split"] = form.text("split") == "yes"
    if form.text("dedup_seconds"):
        found["dedup_seconds"] = form.text("dedup_seconds")
    if kind == "generic" and form.text("verify") == "hmac":
        check = {name: form.text(name) for name in ("header", "algorithm", "encoding", "prefix")}
        found["verify"] = {"hmac": {name: value for name, value in check.items() if value or name == "header"}}
    elif kind == "generic" and form.text("verify") == "auth_key":
        key = {name: form.text(name) for name in ("header", "prefix") if form.text(name)}
        found["verify"] = {"auth_key": key}
    return found


def _values(source: SourceDocument) -> dict[str, str]:
    verify = source.verify
    check = None if verify is None else verify.hmac or verify.auth_key
    fields = {} if check is None else {name: str(value) for name, value in check.model_dump(exclude_none=True).items()}
    return {
        "name": source.name,
        "split": {None: "", True: "yes", False: "no"}[source.split],
        "dedup_seconds": "" if source.dedup_seconds is None else str(source.dedup_seconds),
        "verify": "none" if verify is None else ("auth_key" if verify.hmac is None else "hmac"),
    } | fields


def _form_page(
    request: Request,
    visit: Visit,
    slug: str,
    kind: SourceType,
    source: Mapping[str, Any] | None,
    values: Mapping[str, str],
    wrong: Wrong,
) -> Response:
    return pages.page(
        request,
        "source_form.html",
        visit,
        wrong.status,
        slug=slug,
        kind=kind,
        provider=PROVIDERS[kind],
        source=source,
        stored=0 if source is None else len(source["document"].secrets),
        values=values,
        wrong=wrong,
    )
