"""Servers that speak MCP over streamable HTTP: what they offer, and calling it. Every request keeps the egress rules.

Each use is a session of its own: nothing is shared between cycles, and a server that was restarted is there again.
The SDK is loaded when a server is first used: a worker without servers does without its 25 MB and half a second.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from room_common.contracts.tool_config import ToolConfig
from room_common.egress.client import EgressTransport, Resolve, resolve
from room_common.egress.settings import EgressSettings
from room_common.egress.streams import EgressStreams, streams_client
from room_runner.domain.offers import Offer, offer
from room_runner.outside import ToolFailed

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp_types import CallToolResult

LIST_SECONDS: Final = 15.0
_PAGES: Final = 20


class ServerFailed(Exception):
    """A server can't be used now. ``kind`` is bounded, and the text too: it is shown to operators."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class McpServer:
    """One configured server."""

    def __init__(
        self, name: str, config: ToolConfig, egress: EgressSettings, *, call_seconds: float, resolve: Resolve = resolve
    ) -> None:
        self.name = name
        self.call_seconds = call_seconds
        self._config = config
        self._egress = egress
        self._resolve = resolve

    async def offers(self) -> dict[str, Offer]:
        """What the server offers, by its own names. Raises :class:`ServerFailed`."""
        found: dict[str, Offer] = {}
        transport = self._transport()
        try:
            async with asyncio.timeout(LIST_SECONDS), self._session(transport, LIST_SECONDS) as session:
                from mcp_types import PaginatedRequestParams

                cursor = None
                for _ in range(_PAGES):
                    page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
                    for tool in page.tools:
                        if (made := offer(tool.name, tool.description, tool.input_schema)) is not None:
                            found[tool.name] = made
                    if (cursor := page.next_cursor) is None:
                        break
        except TimeoutError:
            raise ServerFailed("timeout") from None
        except Exception as error:
            raise ServerFailed(transport.trouble or "protocol") from error
        return found

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. Raises :class:`ServerFailed`; after that the call may or may not have happened."""
        transport = self._transport()
        try:
            async with asyncio.timeout(self.call_seconds), self._session(transport, self.call_seconds) as session:
                result = await session.call_tool(tool, dict(arguments))
        except TimeoutError:
            raise ServerFailed("timeout") from None
        except Exception as error:
            raise ServerFailed(transport.trouble or "protocol") from error
        from mcp_types import CallToolResult

        if not isinstance(result, CallToolResult):
            raise ServerFailed("protocol")
        return result

    def _transport(self) -> EgressStreams:
        return EgressStreams(EgressTransport(self._egress, resolve=self._resolve))

    @asynccontextmanager
    async def _session(self, transport: EgressStreams, seconds: float) -> AsyncIterator[ClientSession]:
        session_type, connect, implementation = await asyncio.to_thread(_sdk)
        config = self._config
        headers = {} if config.secret is None else {config.header: f"{config.prefix}{config.secret}"}
        async with (
            streams_client(transport, self._egress, headers, read_seconds=seconds) as client,
            connect(config.url, http_client=client) as (read, write),
            session_type(
                read, write, read_timeout_seconds=seconds, client_info=implementation(name="room", version="1")
            ) as session,
        ):
            await session.initialize()
            yield session


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server, as a cycle calls it."""

    name: str
    server: McpServer = field(repr=False)
    remote_name: str
    offer: Offer = field(repr=False)
    verified_only: bool

    @property
    def description(self) -> str:
        return self.offer.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.offer.parameters

    async def call(self, arguments: str) -> str:
        """As :class:`~room_runner.outside.OutsideTool`."""
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise ToolFailed("arguments", "the arguments are not a JSON object; nothing was called")
        try:
            result = await self.server.call(self.remote_name, parsed)
        except ServerFailed as error:
            raise ToolFailed(
                error.kind, f"the server of this tool failed ({error.kind}): the call may or may not have happened"
            ) from error
        text = _text(result)
        if result.is_error:
            raise ToolFailed("tool_error", text)
        return text


def _sdk() -> tuple[Any, Any, Any]:
    from mcp.client.session import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import Implementation

    return ClientSession, streamable_http_client, Implementation


def _text(result: CallToolResult) -> str:
    parts = [item.text if item.type == "text" else f"[{item.type} left out]" for item in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)
