"""The panel as an application of its own, and where it hangs in the API's."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from room_admin.panel import pages, sessions
from room_admin.panel.headers import SafeHeaders
from room_admin.panel.pages import STATIC, Assets
from room_admin.panel.routes import (
    actions,
    charts,
    chronicle,
    conversation,
    cycles,
    deliveries,
    entry,
    installation,
    lists,
    overview,
    room_forms,
    rooms,
    source_forms,
    workshop,
)
from room_admin.problems import Problem
from room_common.errors import DependencyUnavailable

HOME = "/panel/"


def mount(app: FastAPI) -> None:
    """Serve the panel of ``app``'s adapters at /panel, and lead / there."""
    app.router.routes += [
        Route("/", _home, methods=["GET"]),
        Route("/panel", _home, methods=["GET"]),
        Mount("/panel", SafeHeaders(_build(app))),
    ]


def _build(app: FastAPI) -> FastAPI:
    panel = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    panel.state.database = app.state.database
    panel.state.applier = app.state.applier
    panel.state.urls = app.state.urls
    panel.state.deliveries = app.state.deliveries
    panel.state.tester = app.state.tester
    panel.state.answers = app.state.answers
    panel.state.feed = app.state.feed
    panel.state.allowances = app.state.allowances
    panel.mount("/static", Assets(directory=STATIC))
    for routes in (
        entry,
        overview,
        charts,
        room_forms,
        rooms,
        conversation,
        chronicle,
        source_forms,
        workshop,
        deliveries,
        cycles,
        lists,
        installation,
        actions,
    ):
        panel.include_router(routes.router)
    _install_errors(panel)
    return panel


def _home(_: Request) -> Response:
    return RedirectResponse(HOME, 303)


def _install_errors(panel: FastAPI) -> None:
    @panel.exception_handler(sessions.SignedOut)
    async def signed_out(request: Request, _: sessions.SignedOut) -> Response:
        return entry.ask_to_sign_in(request)

    @panel.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return pages.problem(request, error.status, error.detail)

    @panel.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        where = ", ".join(sorted({str(item["loc"][-1]) for item in error.errors()}))
        return pages.problem(request, 422, f"This is not a value that can be asked for: {where}.")

    @panel.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return pages.problem(request, error.status_code, str(error.detail))

    @panel.exception_handler(DependencyUnavailable)
    async def unavailable(request: Request, error: DependencyUnavailable) -> Response:
        detail = f"{error.dependency} does not answer. Nothing is lost; try again in a moment."
        return pages.problem(request, 503, detail)

    @panel.exception_handler(Exception)
    async def unexpected(request: Request, _: Exception) -> Response:
        # Starlette raises the error again behind this answer: the API's middleware logs where it was.
        return pages.problem(request, 500, "Something went wrong here; the log of admin says where.")
