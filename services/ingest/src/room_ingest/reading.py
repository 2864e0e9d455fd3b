"""From bytes to requests: the parser's callbacks, and what of a message is refused before it is whole.

llhttp, which httptools wraps, is strict about line ends, lengths and chunks; what it lets through and HTTP does not
(other versions, codings beside ``chunked``, no or several Hosts) is refused here.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, Protocol

import httptools
import structlog

from room_ingest import answers
from room_ingest.answers import Answer, Renderer
from room_ingest.domain.request_headers import plan
from room_ingest.exchange import Exchange, Handler

if TYPE_CHECKING:
    from room_ingest.http import Connection
    from room_ingest.settings import HttpSettings

MAX_DISCARD: Final = 1 << 20
"""Bytes read away after a connection's last answer, and bytes of one request on the wire, chunk framing included."""
MAX_UPGRADES: Final = 16
"""Wishes for another protocol in one read; each makes the rest of it be parsed again."""

_STOPPED: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)
_SPACE: Final = b" \t"
_DROPPED: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})

log = structlog.get_logger(__name__)


IDLE, HEAD, BODY, LAST, LINGER, CLOSED = range(6)
"""What a connection waits for, in order. LAST: nothing is parsed any more, and the last answer is not written yet.
LINGER: it is, and what still arrives is read away. Plain numbers: an enum's members cost on every request."""


class _Refused(Exception):
    """The rest of what was received must not be parsed."""


class Host(Protocol):
    """What a connection needs from the server it belongs to."""

    settings: HttpSettings
    max_body: int
    handler: Handler
    renderer: Renderer
    draining: bool

    def opened(self, connection: Connection) -> bool:
        """Whether the connection may stay."""

    def closed(self, connection: Connection) -> None: ...


class RequestReader(asyncio.Protocol):
    """One connection's requests. What becomes of a whole one, and of a refusal, is the subclass's."""

    __slots__ = (
        "_begun",
        "_chunks",
        "_continue",
        "_current",
        "_host",
        "_loop",
        "_names",
        "_parser",
        "_raw",
        "_replay",
        "_size",
        "_upgrading",
        "_values",
        "deadline",
        "phase",
    )

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._current = self._new_exchange()
        self._chunks: list[bytes] = []
        self._names: list[bytes] = []
        self._values: list[bytes] = []
        self._size = self._raw = self._begun = 0
        self._continue = self._replay = False
        self._upgrading: tuple[bytes, ...] = ()
        self.phase = HEAD
        self.deadline = math.inf

    def _new_exchange(self) -> Exchange:
        raise NotImplementedError

    def _dispatch(self, exchange: Exchange) -> None:
        raise NotImplementedError

    def _refuse(self, answer: Answer) -> None:
        """Give ``answer`` after those still owed, then end the connection."""
        raise NotImplementedError

    def _last(self) -> None:
        """Parse no further."""
        raise NotImplementedError

    def _failed(self) -> None:
        """A defect of ours met a request: its sender still gets an answer."""
        raise NotImplementedError

    def flush(self) -> None:
        raise NotImplementedError

    # -- one read -----------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        """Parse what came, and set the deadline of what is to come."""
        before = self.phase
        self._begun = 0
        try:
            self._parser.feed_data(data)
        except _STOPPED as error:
            self._stopped(error, data)
        phase = self.phase
        if phase >= LAST:
            return
        settings = self._host.settings
        if phase != IDLE and self._oversized(before, len(data)):
            self._refuse(answers.HEADERS_TOO_LARGE if phase == HEAD else answers.BAD_REQUEST)
            return
        if self.deadline == 0.0:
            limits = (settings.idle_seconds, settings.headers_seconds, settings.body_seconds)
            self.deadline = self._loop.time() + limits[phase]

    def _oversized(self, before: int, size: int) -> bool:
        """Whether the message now in part here is too long on the wire. Of a message whose beginning shared a read with
        the end of another one, that read does not count."""
        if not self._begun:
            self._raw += size
        elif self._begun == 1 and (before == IDLE or not self._raw):
            self._raw = size
        else:
            self._raw = 1
        return self._raw > (self._host.settings.max_header_bytes if self.phase == HEAD else MAX_DISCARD)

    def _stopped(self, error: Exception, data: bytes) -> None:
        """The parser stopped in the middle of ``data``."""
        for _ in range(MAX_UPGRADES):
            if isinstance(error, httptools.HttpParserCallbackError):
                if not isinstance(error.__context__, _Refused):
                    log.error("a request could not be handled", exc_info=error.__context__)
                    self._failed()
                return
            if not isinstance(error, httptools.HttpParserUpgrade) or self.phase >= LAST:
                break
            data = self._without_upgrade() + data[error.args[0] :]
            try:
                self._parser.feed_data(data)
                return
            except _STOPPED as another:
                error = another
        self._refuse(answers.BAD_REQUEST)

    def _without_upgrade(self) -> bytes:
        """The head of a request that asks for another protocol, without that wish: it may be ignored (RFC 9110 7.8).

        llhttp does not read the body of such a request, so it is parsed again. Java's client sends these.
        """
        exchange = self._current
        self._replay = False
        self._parser = httptools.HttpRequestParser(self)
        fields = [(name.lower(), value) for name, value in zip(self._upgrading, exchange.values, strict=True)]
        close = any(name == b"connection" and b"close" in value.lower() for name, value in fields)
        lines = [b"%b %b HTTP/%b" % (exchange.method, exchange.target, exchange.version.encode("ascii"))]
        lines += [b"%b: %b" % field for field in fields if field[0] not in _DROPPED]
        if close:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # -- callbacks of the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._current = self._new_exchange()
        if self._chunks:
            self._chunks = []
        self._size = 0
        if self._names:
            self._names, self._values = [], []
        self._begun += 1
        if self.phase != HEAD:  # a connection's first request counts from its opening
            self.phase = HEAD
            self.deadline = 0.0

    def on_url(self, url: bytes) -> None:
        exchange = self._current
        exchange.target += url
        if len(exchange.target) > self._host.settings.max_target_bytes:
            self._stop(answers.TARGET_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._names.append(name)
        self._values.append(value)

    def on_headers_complete(self) -> None:
        exchange = self._current
        parser = self._parser
        names, values = tuple(self._names), self._values
        self._names, self._values = [], []  # what comes now are trailers
        exchange.plan = planned = plan(names)
        exchange.values = values
        exchange.method = parser.get_method()
        exchange.version = version = parser.get_http_version()
        if planned.size + sum(map(len, values)) > self._host.settings.max_header_bytes:
            self._stop(answers.HEADERS_TOO_LARGE)
        chunked = bool(planned.codings)
        for place in planned.codings:
            if values[place].rstrip(_SPACE).lower() != b"chunked":
                self._stop(answers.BAD_REQUEST)
        length = int(values[planned.length]) if planned.length >= 0 else 0
        expects = planned.expect >= 0 and values[planned.expect].rstrip(_SPACE).lower() == b"100-continue"
        hosts = planned.hosts
        current = version == "1.1"
        if (hosts != 1 and (current or hosts)) or (not current and (version != "1.0" or chunked)):
            self._stop(answers.BAD_REQUEST)
        if exchange.method == b"CONNECT":
            self._stop(answers.METHOD_NOT_ALLOWED)
        if parser.should_upgrade():
            self._replay = True
            self._upgrading = names
        self.phase = BODY
        self.deadline = 0.0
        if length > self._host.max_body:
            self._too_large()
        elif expects and current and (length or chunked) and not self._replay:
            self._continue = True
            self.flush()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._host.max_body:
            self._too_large()
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._replay:
            return
        if self._names:
            self._trailers()
        exchange = self._current
        chunks = self._chunks
        if chunks:
            exchange.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
        exchange.keep = keep = self._parser.should_keep_alive()
        self._continue = False
        if keep:
            self.phase = IDLE
            self.deadline = 0.0
            self._dispatch(exchange)
        else:
            self.phase = LAST
            self.deadline = math.inf
            self._dispatch(exchange)
            raise _Refused

    def _trailers(self) -> None:
        """Fields after the body are bounded like those before it, and forgotten."""
        size = sum(len(name) + len(value) + 4 for name, value in zip(self._names, self._values, strict=True))
        self._names, self._values = [], []
        if size > self._host.settings.max_header_bytes:
            self._stop(answers.HEADERS_TOO_LARGE)

    def _too_large(self) -> None:
        """The answer is known: none of the body is kept, and nothing after it can be told from it."""
        exchange = self._current
        exchange.too_large = True
        self._chunks = []
        self._last()
        self._dispatch(exchange)
        raise _Refused

    def _stop(self, answer: Answer) -> None:
        """From a callback of the parser: refuse, and parse no further."""
        self._refuse(answer)
        raise _Refused
