"""The web application: routes, errors and limits."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from room_admin import idempotency, problems
from room_admin.answers import Answers
from room_admin.apply import Applier, Urls
from room_admin.deliveries import Deliveries
from room_admin.feed import Feed
from room_admin.idempotency import Idempotency
from room_admin.limits import BodyLimit
from room_admin.panel import application as panel
from room_admin.problems import ProblemDetails
from room_admin.request_spans import RequestSpans
from room_admin.routes import (
    answers,
    apply,
    callers,
    changes,
    definitions,
    deliveries,
    feed,
    instances,
    overflow,
    parts,
    rooms,
    settings,
    work,
)
from room_admin.routes.definitions import Tester
from room_admin.spending import allowances
from room_common.crypto import Keyring
from room_common.postgres.database import Database
from room_common.telemetry.metrics import room_version

_ERRORS = (400, 401, 403, 404, 405, 409, 410, 412, 413, 422, 428, 429, 503)


class _Api(FastAPI):
    """Describes what middleware takes, too."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            idempotency.declare(super().openapi())
        return super().openapi()


def build(
    database: Database | None = None,
    applier: Applier | None = None,
    urls: Urls | None = None,
    reading: Deliveries | None = None,
    tester: Tester | None = None,
    live: Feed | None = None,
    answering: Answers | None = None,
    keyring: Keyring | None = None,
) -> FastAPI:
    """The API. Without adapters it can only describe itself: the committed OpenAPI document is made that way."""
    app = _Api(
        title="Room",
        version=room_version(),
        summary="Operate the rooms of this installation.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
        responses={
            status: {"model": ProblemDetails, "content": {"application/problem+json": {}}} for status in _ERRORS
        },
    )
    app.add_middleware(Idempotency, database=database, keyring=keyring)  # inside of what answers errors
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(RequestSpans)
    app.state.database = database
    app.state.applier = applier
    app.state.urls = urls
    app.state.deliveries = reading
    app.state.tester = tester
    app.state.feed = live
    app.state.answers = answering
    app.state.allowances = allowances()
    about_rooms = (apply, instances, settings, changes, parts, rooms, definitions)
    for routes in (*about_rooms, deliveries, overflow, work, answers, feed, callers):
        app.include_router(routes.router, prefix="/api/v1")
    panel.mount(app)
    return app
