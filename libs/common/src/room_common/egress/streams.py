"""The same rules for clients that are built on httpx2, such as the MCP SDK: it hands every request to ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import httpx
import httpx2

from room_common.egress.client import EgressRefused, EgressTransport
from room_common.egress.settings import EgressSettings


class EgressStreams(httpx2.AsyncBaseTransport):
    """A transport of httpx2 that sends through :class:`~room_common.egress.client.EgressTransport`.

    Errors are httpx2's own. ``trouble`` is a bounded name for the last thing that went wrong, for a client whose own
    errors no longer tell: ``egress_...`` for what the rules refused, ``unreachable``, ``timeout``, ``http_401``...
    """

    def __init__(self, inner: EgressTransport) -> None:
        self._inner = inner
        self.trouble: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it."""
        try:
            answer = await self._inner.handle_async_request(
                httpx.Request(
                    request.method,
                    str(request.url),
                    headers=request.headers.raw,
                    content=await request.aread(),
                    extensions=request.extensions,
                )
            )
        except httpx.RequestError as error:
            raise self._failed(error) from error
        if answer.status_code >= 400 and request.method == "POST":
            self.trouble = f"http_{answer.status_code}"
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        stream = _Stream(answer.stream, self._failed)
        return httpx2.Response(answer.status_code, headers=answer.headers.raw, stream=stream)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    def _failed(self, error: httpx.RequestError) -> httpx2.RequestError:
        if isinstance(error, EgressRefused):
            self.trouble = f"egress_{error.reason}"
        elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            self.trouble = "unreachable"
        else:
            self.trouble = "timeout" if isinstance(error, httpx.TimeoutException) else "connection"
        return httpx2.RequestError(str(error) or type(error).__name__)


class _Stream(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx.AsyncByteStream, failed: Callable[[httpx.RequestError], httpx2.RequestError]
    ) -> None:
        self._inner = inner
        self._failed = failed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx.RequestError as error:
            raise self._failed(error) from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def streams_client(
    transport: EgressStreams, settings: EgressSettings, headers: Mapping[str, str], *, read_seconds: float
) -> httpx2.AsyncClient:
    """A client of httpx2 whose every request keeps the rules, with ``headers`` in each."""
    return httpx2.AsyncClient(
        transport=transport,
        timeout=httpx2.Timeout(read_seconds, connect=settings.connect_seconds),
        follow_redirects=False,
        trust_env=False,
        headers={"User-Agent": "Room", **headers},
    )
