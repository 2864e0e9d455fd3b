"""The one client for addresses that are not ours: it connects where it has checked, and nowhere else.

https only unless the setting allows http; the name is resolved once and refused unless every address is permitted; the
connection goes to such an address, with the name in TLS and Host; redirects are refused; answers are bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import httpx

from room_common.egress.addresses import permitted
from room_common.egress.settings import EgressSettings

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class EgressRefused(httpx.RequestError):
    """The rules do not allow this request, or its answer. ``reason`` is a bounded name; nothing else is told."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a name, by the system's resolver. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class EgressTransport(httpx.AsyncBaseTransport):
    """A transport of httpx that keeps the rules. Every request has a connection of its own.

    A connection is never reused: the pool knows connections by address, and two names may share one.
    """

    def __init__(
        self,
        settings: EgressSettings,
        *,
        resolve: Resolve = resolve,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._inner = inner or httpx.AsyncHTTPTransport(
            trust_env=False, http2=False, limits=httpx.Limits(max_connections=100, max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, raising :class:`EgressRefused` where the rules say no."""
        address = await self._address(request.url)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
        answer = await self._inner.handle_async_request(
            httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=[*headers, (b"accept-encoding", b"identity")],
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii").strip("[]")},
            )
        )
        try:
            self._check(answer)
        except EgressRefused:
            await answer.aclose()
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        stream = _Bounded(answer.stream, self._settings.max_answer_bytes)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, extensions=answer.extensions)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def _address(self, url: httpx.URL) -> str:
        if url.scheme not in ("https", "http"):
            raise EgressRefused("scheme")
        if url.scheme == "http" and not self._settings.allow_http:
            raise EgressRefused("https_only")
        if url.userinfo or not url.host:
            raise EgressRefused("url")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._settings.connect_seconds):
                found = await self._resolve(url.raw_host.decode("ascii").strip("[]"), port)
        except TimeoutError:
            raise httpx.ConnectTimeout("resolving took too long") from None
        except (OSError, UnicodeError):
            raise httpx.ConnectError("the name can't be resolved") from None
        if not permitted(found, self._settings.allowed_networks):
            raise EgressRefused("address")
        return found[0]

    def _check(self, answer: httpx.Response) -> None:
        if 300 <= answer.status_code < 400 and answer.status_code != 304:
            raise EgressRefused("redirect")
        # Inflating could make any number of bytes out of a few; we asked for none of it.
        if answer.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise EgressRefused("encoding")
        length = answer.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._settings.max_answer_bytes:
            raise EgressRefused("too_large")


class _Bounded(httpx.AsyncByteStream):
    """Passes an answer's bytes on, up to a limit."""

    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise EgressRefused("too_large")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


_AGENT: Final = "Room"


def egress_client(settings: EgressSettings, *, resolve: Resolve = resolve) -> httpx.AsyncClient:
    """A client whose every request keeps the rules. It follows no redirect and reads no proxy settings."""
    return httpx.AsyncClient(
        transport=EgressTransport(settings, resolve=resolve),
        timeout=httpx.Timeout(settings.read_seconds, connect=settings.connect_seconds),
        follow_redirects=False,
        trust_env=False,
        headers={"User-Agent": _AGENT},
    )
