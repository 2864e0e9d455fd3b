"""The inbox's HTTP side: outbound delivers, ``room chat`` waits for news, a browser shows everything."""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Mapping
from itertools import islice

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from room_local.inbox.store import Message, Store
from room_local.loopback import BadBody, application, page, problem, read_json, text

LONGEST_BODY = 256 * 1024
LONGEST_FIELD = 200
LONGEST_WAIT = 60.0
PAGE_OF_MESSAGES = 200
SHOWN_PER_ROOM = 50


class Inbox:
    """The handlers. One message is written at a time; waiting readers are told after it is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()

    def app(self) -> Starlette:
        """The application."""
        return application(
            [
                Route("/", self._page),
                Route("/v1/messages", self._take, methods=["POST"]),
                Route("/v1/messages", self._list, methods=["GET"]),
            ]
        )

    async def _take(self, request: Request) -> JSONResponse:
        try:
            fields = _message_fields(await read_json(request, LONGEST_BODY))
            if request.headers.get("idempotency-key", fields["id"]) != fields["id"]:
                raise BadBody(400, "Idempotency-Key is the message's id")
        except BadBody as error:
            return problem(error)
        async with self._writing:
            try:
                message, new = await asyncio.to_thread(self._store.add, **fields)
            except OSError:
                return problem(BadBody(503, "the message could not be written"))
        if new:
            self._news.set()
            self._news = asyncio.Event()
        return JSONResponse({"message_id": message.message_id}, status_code=201 if new else 200)

    async def _list(self, request: Request) -> JSONResponse:
        try:
            after = int(_number(request, "after", math.inf))
            wait = _number(request, "wait", LONGEST_WAIT)
        except BadBody as error:
            return problem(error)
        room = request.query_params.get("room")
        found = self._after(room, after)
        try:
            async with asyncio.timeout(wait):
                while not found and wait:
                    await self._news.wait()
                    found = self._after(room, after)
        except TimeoutError:
            pass
        following = found[-1].seq if found else after
        return JSONResponse({"messages": [message.view() for message in found], "next": following})

    def _after(self, room: str | None, after: int) -> list[Message]:
        return list(islice(self._store.messages(room=room, after=after), PAGE_OF_MESSAGES))

    async def _page(self, _request: Request) -> HTMLResponse:
        parts = [
            '<p class="note">This is the local channel: what your rooms send you arrives here. Answer in a terminal, '
            "once with <code>room reply</code> or in a conversation with <code>room chat</code>.</p>"
        ]
        for room in self._store.rooms():
            latest = list(self._store.messages(room=room))[-SHOWN_PER_ROOM:]
            command = f"room reply {shlex.quote(room)} 'your answer'"
            parts.append(f"<section><h2>{text(room)}</h2><p>Answer: <code>{text(command)}</code></p>")
            parts += [_article(message) for message in reversed(latest)]
            parts.append("</section>")
        if len(parts) == 1:
            parts.append("<p>No message yet.</p>")
        return page("Room: your messages", "".join(parts), refresh_seconds=5)


def _article(message: Message) -> str:
    return (
        f"<article><header>{text(message.received_at[:19].replace('T', ' '))} UTC, to {text(message.target)}</header>"
        f"<p>{text(message.text)}</p></article>"
    )


def _message_fields(body: object) -> dict[str, str]:
    if not isinstance(body, Mapping):
        raise BadBody(400, "a message is a JSON object")
    fields: dict[str, str] = {}
    for name in ("id", "room", "target", "text", "created_at"):
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise BadBody(400, f"{name} is a text")
        if name != "text" and len(value) > LONGEST_FIELD:
            raise BadBody(400, f"{name} has at most {LONGEST_FIELD} characters")
        fields[name] = value
    return fields


def _number(request: Request, name: str, most: float) -> float:
    try:
        number = float(request.query_params.get(name) or 0)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise BadBody(400, f"{name} is a number from 0")
    return min(number, most)
