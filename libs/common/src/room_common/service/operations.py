"""The operations port: /livez, /readyz and /metrics, up before the first part starts and until the last one has
stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

import orjson
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from room_common.errors import ConfigurationError
from room_common.settings import OperationsSettings

Reasons = Callable[[], Mapping[str, str]]
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"
_STOP_SECONDS = 2.0


def _reason(error: OSError) -> str:
    """Without the address, which asyncio and socket put into their own text."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the frame owns the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Operations:
    """Serves the health of a service. ``dead`` and ``waiting`` tell reasons by part; empty means all is well."""

    def __init__(
        self, settings: OperationsSettings, registry: CollectorRegistry, dead: Reasons, waiting: Reasons
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._dead = dead
        self._waiting = waiting
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Bind and serve. Raises ConfigurationError where the address can't be had."""
        try:
            listener = socket.create_server(
                (self._settings.host, self._settings.port),
                family=socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET,
                backlog=128,
            )
        except OSError as error:
            raise ConfigurationError(
                f"ROOM_OPERATIONS__HOST and ROOM_OPERATIONS__PORT: can't listen on"
                f" {self._settings.host}:{self._settings.port} ({_reason(error)}); choose another"
            ) from None
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=5,
            limit_concurrency=64,
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="operations")

    async def stop(self) -> None:
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        _, pending = await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        for task in pending:
            task.cancel()

    async def _answer(self, scope: Scope, _receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._route(scope)
        headers = [(b"content-type", kind), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _route(self, scope: Scope) -> tuple[int, bytes, bytes]:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, _TEXT, b"method not allowed\n"
        if scope["path"] == "/livez":
            dead = dict(self._dead())
            return 503 if dead else 200, _JSON, orjson.dumps({"live": not dead, "failing": dead})
        if scope["path"] == "/readyz":
            waiting = dict(self._waiting())
            return 503 if waiting else 200, _JSON, orjson.dumps({"ready": not waiting, "waiting": waiting})
        if scope["path"] == "/metrics":
            accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
            encode, kind = choose_encoder(accept)
            return 200, kind.encode(), encode(self._registry)
        return 404, _TEXT, b"not found\n"
