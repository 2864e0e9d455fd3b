"""The webhook port: accepts, sweeps deadlines, and stops without leaving a request unanswered."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

import structlog

from room_common.service.parts import Part
from room_ingest.answers import Renderer
from room_ingest.exchange import Handler
from room_ingest.http import Connection
from room_ingest.metrics import IngestMetrics
from room_ingest.settings import MAX_BODY, HttpSettings

SWEEP_SECONDS: Final = 0.2
RETIRE_SECONDS: Final = 0.5
"""How long idle connections stay open while the process stops: a request may be on its way on them."""

log = structlog.get_logger(__name__)


class Server(Part):
    """Listens on the webhook port and owns its connections."""

    name = "http"

    def __init__(self, settings: HttpSettings, handler: Handler, metrics: IngestMetrics) -> None:
        self.settings = settings
        self.max_body = MAX_BODY
        self.handler = handler
        self.renderer = Renderer()
        self.draining = False
        self.stop_timeout = settings.drain_seconds + 3.0
        self.port = settings.port
        """The port it listens on: the setting's, or after the start the free one it took."""
        self._metrics = metrics
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self, loop),
            settings.host,
            settings.port,
            backlog=settings.backlog,
            reuse_port=settings.reuse_port or None,
            family=socket.AF_UNSPEC,
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._sweep(loop)
        log.info("listening", port=self.port)

    async def stop(self) -> None:
        """Accept no more, answer what is in hand with ``Connection: close``, then drop who is still there."""
        self.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.drain_seconds
        if self._server is not None:
            await asyncio.sleep(0)  # whoever the kernel has connected already is accepted first
            self._server.close()
        retire = min(loop.time() + RETIRE_SECONDS, end)
        while self._connections and loop.time() < end:
            await asyncio.sleep(0.02)
            if loop.time() >= retire:
                for connection in list(self._connections):
                    connection.retire()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._connections:
            log.warning("connections dropped at the end of the drain", connections=len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)

    def ready(self) -> str | None:
        if self._server is None:
            return "not listening yet"
        return "draining" if self.draining else None

    def opened(self, connection: Connection) -> bool:
        self._connections.add(connection)
        self._metrics.connections = len(self._connections)
        return len(self._connections) <= self.settings.max_connections

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._metrics.connections = len(self._connections)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep, loop)
        self.renderer.tick(time.time())
        now = loop.time()
        for connection in list(self._connections):
            connection.expire(now)
