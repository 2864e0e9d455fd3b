"""Small HTTP servers for the person at this machine: loopback only, no script, nothing from elsewhere.

A web page that the person visits can send requests to these servers too. So the Host header must name this machine
(no DNS rebinding), bodies must be declared as JSON (which a foreign page may not send without asking first), and pages
carry a policy under which nothing but their own style sheet loads.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

HOST = "127.0.0.1"
GRACE_SECONDS = 2

STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .2rem .8rem .2rem 0; }
article { border: 1px solid #8886; border-radius: .5rem; padding: .6rem .9rem; margin: .6rem 0; }
article header { font-size: .85rem; opacity: .75; }
article p { margin: .3rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; } .note { border-left: .25rem solid #c80; padding-left: .8rem; }
"""
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class BadBody(Exception):
    """A request body that can't be used; ``status`` and the message are the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def application(routes: Sequence[BaseRoute], *, lifespan: Lifespan | None = None) -> Starlette:
    """A Starlette app with the checks above and the style sheet of :func:`page`."""
    return Starlette(
        routes=[*routes, Route("/style.css", _style)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
        lifespan=lifespan,
    )


def serve(app: Starlette, port: int) -> None:
    """Serve ``app`` on ``port`` of the loopback address until SIGTERM or SIGINT."""
    uvicorn.run(
        app, host=HOST, port=port, access_log=False, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS
    )


async def read_json(request: Request, limit: int) -> object:
    """The JSON of a request's body.

    Raises BadBody: 415 when it is not declared as JSON, 413 when longer than ``limit`` bytes, 400 when it is no JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadBody(415, "send application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise BadBody(413, f"at most {limit} bytes")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadBody(400, "not JSON") from None


def page(title: str, body: str, *, refresh_seconds: int) -> HTMLResponse:
    """A page. ``body`` is HTML: everything from outside in it must have gone through :func:`text`."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="refresh" content="{refresh_seconds}"><title>{text(title)}</title>'
        f'<link rel="stylesheet" href="/style.css"><h1>{text(title)}</h1>{body}</html>',
        headers=_HEADERS,
    )


def text(value: object) -> str:
    """``value`` as text inside HTML."""
    return html.escape(str(value))


def problem(error: BadBody) -> JSONResponse:
    """The answer to a bad body."""
    return JSONResponse({"error": {"message": str(error)}}, status_code=error.status)


async def _style(_request: Request) -> Response:
    return Response(STYLE, media_type="text/css")
