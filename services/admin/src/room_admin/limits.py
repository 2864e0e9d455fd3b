"""A bound on what a caller may post."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from room_admin.problems import respond

MAX_BODY: Final = 1 << 20
"""Bytes of a request body."""

_DETAIL: Final = f"a body may have {MAX_BODY} bytes"


class BodyLimit:
    """Refuses a larger body with 413, also when its length was not declared or was a lie."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared: bytes = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > MAX_BODY):
            await respond(413, _DETAIL)(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                # Whoever reads a body inside the application lets this error through to its handler.
                raise HTTPException(413, _DETAIL)
            return message

        await self._app(scope, counted, send)
