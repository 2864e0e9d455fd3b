"""A response that goes on: events are sent as they come, until there are none or the client is gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from room_admin.feed import Stream

SEND_SECONDS: Final = 10.0
"""How long a client may take to read what was sent; then it counts as gone."""


class EventStream(Response):
    """Server-sent events. Closes the stream whichever way it ends."""

    media_type = "text/event-stream"

    def __init__(self, events: Stream) -> None:
        # X-Accel-Buffering: a proxy must not collect events
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()

    async def _send(self, send: Send) -> None:
        with suppress(TimeoutError):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
