"""Each request of the API and the panel as a span, where traces are exported."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from room_common.telemetry.tracing import HEADER, extract, failed, span, tracer

API: Final = "/api/v1"
"""Before the paths of the API's routes, which do not know it themselves."""


class RequestSpans:
    """Middleware. Paths are shown as their route's template; what is no route is not shown."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or tracer() is None:
            await self._app(scope, receive, send)
            return
        headers = [(HEADER, value) for name, value in scope["headers"] if name == HEADER.encode()]
        method = scope["method"]
        attributes = {"http.request.method": method, "url.scheme": scope["scheme"]}
        with span(method, SpanKind.SERVER, parent=extract(headers), attributes=attributes) as request:

            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    request.set_attribute("http.response.status_code", status)
                    if status >= 500:
                        failed(request, str(status))
                await send(message)

            await self._app(scope, receive, note)
            route = _template(scope)
            if route is not None:
                request.set_attribute("http.route", route)
                request.update_name(f"{method} {route}")


def _template(scope: Scope) -> str | None:
    path: str | None = getattr(scope.get("route"), "path", None)
    under_api = scope["path"].startswith(f"{API}/")
    return path if path is None or not under_api or path.startswith(API) else API + path
