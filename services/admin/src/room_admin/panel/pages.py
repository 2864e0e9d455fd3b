"""Drawing pages: templates that escape everything and name what can't be seen, and the files beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from room_admin.domain import attention, humane, words
from room_admin.domain.visible import visible
from room_admin.panel.sessions import CSRF_HEADER, Visit
from room_common.domain.jsonview import json_text
from room_common.telemetry.metrics import room_version

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
_TITLES: Final = {
    401: "Signed out",
    403: "Not allowed",
    404: "Not found",
    409: "Not now",
    422: "Not valid",
    500: "Something went wrong",
    503: "Waiting for a part",
}


class Assets(StaticFiles):
    """The panel's files. An address that names its content is kept for good, another one is asked for again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        found = response.status_code in (200, 304)
        kept = "public, max-age=31536000, immutable" if scope["query_string"].startswith(b"v=") else "no-cache"
        response.headers["Cache-Control"] = kept if found else "no-store"
        return response


def page(request: Request, template: str, visit: Visit, status: int = 200, **values: Any) -> HTMLResponse:
    """A page of a session, or the part of it that ``template`` draws."""
    shown = (
        _environment()
        .get_template(template)
        .render(visit=visit, now=visit.now, path=request.url.path, query=request.url.query, **values)
    )
    return HTMLResponse(shown, status)


def bare(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page that needs no session."""
    return HTMLResponse(_environment().get_template(template).render(visit=None, **values), status)


def problem(request: Request, status: int, detail: str) -> HTMLResponse:
    """An error as a page, or as a note where only a part of a page was asked for."""
    title = _TITLES.get(status, HTTPStatus(status).phrase)
    seen: Visit | None = getattr(request.state, "visit", None)
    if request.headers.get("hx-request") == "true":
        return bare("note.html", status, title=title, detail=detail)
    if seen is None:
        return bare("refused.html", status, title=title, detail=detail)
    return page(request, "problem.html", seen, status, title=title, detail=detail)


def query_with(query: dict[str, object], **changes: object) -> str:
    """A query of those values that are set, changed by ``changes``; empty, or with its question mark."""
    kept = {name: str(value) for name, value in (query | changes).items() if value not in (None, "")}
    return f"?{urlencode(kept)}" if kept else ""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= _FILTERS
    environment.globals |= {
        "asset": _asset,
        "csrf_header": CSRF_HEADER,
        "version": room_version(),
        "query_with": query_with,
        "meanings": words.MEANINGS,
    }
    return environment


def _seen(value: Any) -> Any:
    """Every text that a template puts into a page passes here, on its way to being escaped."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _percent(part: float, whole: float | None) -> int:
    return humane.percent(part, whole or 0)


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "ago": humane.ago,
    "absolute": humane.absolute,
    "duration": humane.duration,
    "number": humane.number,
    "short_number": humane.short_number,
    "size": humane.size,
    "percent": _percent,
    "iso": _iso,
    "tone": words.tone,
    "spaced": words.spaced,
    "short_ids": words.short_ids,
    "room_state": attention.state_of_room,
    "late": attention.late,
    "json_text": lambda value: json_text(value, pretty=True),
    "json_line": json_text,
}


@cache
def _asset(name: str) -> str:
    return f"/panel/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"
