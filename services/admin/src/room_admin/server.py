"""The API's HTTP server as a part of the service."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from room_admin.settings import ApiSettings
from room_common.errors import ConfigurationError, Defect
from room_common.postgres import access
from room_common.postgres.database import Database
from room_common.service.parts import Part

_log = logging.getLogger(__name__)


class _Quiet(uvicorn.Server):
    """Signals belong to the service's frame."""

    def install_signal_handlers(self) -> None:
        """Leave them alone."""


class ApiServer(Part):
    """Listens from ``start`` to ``stop``; requests under way are finished."""

    name = "api"
    stop_timeout = 15.0

    def __init__(self, app: FastAPI, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._server: _Quiet | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        listener = self._listen()
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=10,
            timeout_keep_alive=30,
            server_header=False,
        )
        self._server = _Quiet(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="api")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.stop_timeout - 2):
                await asyncio.shield(self._task)

    def ready(self) -> str | None:
        return None if self._server is not None and self._server.started else "not listening yet"

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._settings.host, self._settings.port))
        except OSError as error:
            listener.close()
            raise ConfigurationError(
                f"ROOM_ADMIN__HOST, ROOM_ADMIN__PORT: can't listen on port {self._settings.port} ({error.strerror})"
            ) from None
        return listener

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
        elif self._server is not None and not self._server.should_exit:
            self.fail(Defect("the API's server ended by itself"))


class Bootstrap(Part):
    """Makes the first operator of an empty installation from a token in the settings."""

    name = "bootstrap"

    def __init__(self, database: Database, token_sha256: bytes | None) -> None:
        self._database = database
        self._token_sha256 = token_sha256

    async def start(self) -> None:
        if self._token_sha256 is not None:
            async with self._database.transaction() as conn:
                made = await access.bootstrap(conn, self._token_sha256)
                caller = await access.find_caller(conn, self._token_sha256)
            if made:
                _log.info("the bootstrap token became the first operator's")
            elif caller is None:
                _log.warning(
                    "ROOM_ADMIN__BOOTSTRAP_TOKEN is refused: there is an operator already, or this token was revoked; "
                    "give another one if nobody holds an operator's token"
                )
