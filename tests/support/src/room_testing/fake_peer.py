"""A small HTTP server that stands for somebody else's: it keeps what it accepted, and fails on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Fault:
    """How one request fails. ``accepted``: the peer takes what it was sent, and fails only then.

    Without a status it never answers, or with ``reset`` closes the connection. ``body`` is what it says instead.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    reset: bool = False
    accepted: bool = False


HANG = Fault()
HANG_AFTER_ACCEPTING = Fault(accepted=True)
RESET = Fault(reset=True)
RESET_AFTER_ACCEPTING = Fault(reset=True, accepted=True)
GARBAGE = Fault(status=200, body="<html>not what you expect</html>")


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class FakePeer:
    """Serves on a free port while it is entered. ``faults`` are used up by the next requests, one each.

    More than ``per_second`` requests in a second get 429 and are counted in ``limited``.

    It answers in the test's own loop: start a service that calls it with ``asyncio.to_thread(start_service, ...)``.
    Subclasses answer in :meth:`accept`, and say by an answer of 400 or more that they did not take it.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.accepted: list[Any] = []
        self.faults: deque[Fault] = deque()
        self.url = ""
        self.per_second: int | None = None
        self.limited = 0
        self._recent: deque[float] = deque()
        self._release = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        """Check a request as the real peer would, keep it in ``accepted``, answer."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.calls.append(Call(request.method, request.path, dict(request.headers), body))
        if self._too_many():
            self.limited += 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        fault = self.faults.popleft() if self.faults else None
        if fault is None:
            return await self.accept(request, body)
        if fault.accepted:
            await self.accept(request, body)
        if fault.reset:
            assert request.transport is not None
            request.transport.abort()
        elif fault.status is None:
            await self._release.wait()
        return web.Response(status=fault.status or 503, headers=dict(fault.headers), text=fault.body)

    def _too_many(self) -> bool:
        if self.per_second is None:
            return False
        now = asyncio.get_running_loop().time()
        while self._recent and self._recent[0] <= now - 1.0:
            self._recent.popleft()
        if len(self._recent) >= self.per_second:
            return True
        self._recent.append(now)
        return False


class FakeInbox(FakePeer):
    """The local inbox: one message per id, kept in the order in which they came."""

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        message = await request.json()
        self.accepted.append(message)
        return web.json_response({"message_id": f"m-{message['id']}"}, status=201)
