"""The tools of instances: configured servers and functions, as far as they are allowed, confirmed and there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from room_common.contracts.tool_config import (
    CONFIG_COLUMN,
    CONFIG_TABLE,
    MAX_FUNCTION_NAME,
    function_name,
    read_tool_config,
)
from room_common.crypto import Keyring, UnknownKey
from room_common.egress.settings import EgressSettings
from room_common.errors import DependencyUnavailable, Refused
from room_common.postgres import tools
from room_common.postgres.database import Database
from room_common.postgres.tools import ToolRow
from room_runner.domain.offers import Offer
from room_runner.mcp_servers import McpServer, McpTool, ServerFailed
from room_runner.outside import OutsideTool
from room_runner.python_tools import PythonTool

_FRESH_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 30.0
_MOST: Final = 10_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found of a server at ``at`` (monotonic seconds)."""

    version: datetime
    at: float
    server: McpServer | None
    offers: Mapping[str, Offer] | None


class InstanceTools:
    """As :class:`~room_runner.outside.Outside`. A server is asked again after 5 minutes, a failed one after 30 s."""

    def __init__(
        self,
        database: Database,
        keyring: Keyring,
        egress: EgressSettings,
        functions: Mapping[str, PythonTool],
        *,
        call_seconds: float,
    ) -> None:
        self._database = database
        self._keyring = keyring
        self._egress = egress
        self._functions = functions
        self._call_seconds = call_seconds
        self._known: dict[UUID, _Known] = {}

    async def tools(self, instance_id: UUID) -> Mapping[str, OutsideTool]:
        """Those that may be called now. Raises ``DependencyUnavailable`` when PostgreSQL is away."""
        async with self._database.transaction() as conn:
            rows = await tools.enabled(conn, instance_id)
        servers = [row for row in rows if row.kind == "mcp"]
        await asyncio.gather(*(self._look(row) for row in servers))
        found: dict[str, OutsideTool] = {}
        for row in rows:
            if row.kind == "mcp":
                found.update((tool.name, tool) for tool in self._usable(row))
            elif (function := self._functions.get(row.name)) is not None:
                found[row.name] = function.guarded() if row.verified_only else function
            else:
                await self._report(row, None, "not_installed")
        return found

    def _usable(self, row: ToolRow) -> Iterator[McpTool]:
        known = self._known.get(row.id)
        if known is None or known.server is None or known.offers is None:
            return
        for name in row.allowed:
            full = function_name(row.name, name)
            offered = known.offers.get(name)
            if offered is None or len(full) > MAX_FUNCTION_NAME:
                continue
            if row.pins.get(name, offered.sha256) != offered.sha256:
                _log.warning("tool has changed: off until it is confirmed", tool=full)
                continue
            yield McpTool(full, known.server, name, offered, name in row.verified_only)

    async def _look(self, row: ToolRow) -> None:
        """Ask the server what it offers, unless that is known."""
        known = self._known.get(row.id)
        if known is not None and known.version == row.version:
            age = time.monotonic() - known.at
            if age < (_RETRY_SECONDS if known.offers is None else _FRESH_SECONDS):
                return
        server, offers, error = None, None, None
        try:
            server = self._server(row)
            offers = await server.offers()
        except (ServerFailed, Refused, UnknownKey) as failure:
            error = failure.kind if isinstance(failure, ServerFailed | UnknownKey) else failure.reason
            _log.warning("tool server can't be used", server=row.name, reason=error)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[row.id] = _Known(row.version, time.monotonic(), server, offers)
        await self._report(row, offers, error)

    def _server(self, row: ToolRow) -> McpServer:
        if row.config is None:
            raise Refused("config_unreadable")
        plain = self._keyring.decrypt(row.config, table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(row.id))
        return McpServer(row.name, read_tool_config(plain), self._egress, call_seconds=self._call_seconds)

    async def _report(self, row: ToolRow, offers: Mapping[str, Offer] | None, error: str | None) -> None:
        seen = None
        if offers is not None:
            seen = {
                name: {"sha256": offers[name].sha256, "description": offers[name].description}
                for name in row.allowed
                if name in offers
            }
        try:
            async with self._database.transaction() as conn:
                await tools.report(conn, row.id, row.version, seen, error)
        except DependencyUnavailable as failure:
            _log.info("health of a tool server not written", reason=str(failure))
