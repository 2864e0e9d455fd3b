"""One HTTP/1.x connection, as an asyncio.Protocol on httptools.

llhttp, which httptools wraps, is strict about line ends, lengths and chunks; what it lets through and HTTP does not
(other versions, codings beside ``chunked``, no or several Hosts) is refused here. Answers leave in the order of their
requests. A connection that ends early with an answer is closed *lingering*: the sending side first, then, while the
client may still be writing, what arrives is read away for a while, since a close with unread bytes makes the kernel
reset the connection and the client may never see its answer.

The owner (:class:`Host`) supplies limits, the handler, the clock of answers, and a sweep that calls ``expire``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools
import structlog

from room_ingest import answers
from room_ingest.answers import Answer, Renderer
from room_ingest.exchange import Exchange, Handler

if TYPE_CHECKING:
    from room_ingest.settings import HttpSettings

MAX_DISCARD: Final = 1 << 20
"""Bytes read away after a connection's last answer, and bytes of one request on the wire, chunk framing included."""
DISCARD_SECONDS: Final = 2.0
MAX_UPGRADES: Final = 16
"""Wishes for another protocol in one read; each makes the rest of it be parsed again."""
WRITE_SECONDS: Final = 10.0
"""How long a client may leave answers unread."""

_CHECKED: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})
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


class Connection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_begun",
        "_chunks",
        "_continue",
        "_current",
        "_discarded",
        "_eof",
        "_host",
        "_lines",
        "_loop",
        "_parser",
        "_paused",
        "_queue",
        "_raw",
        "_replay",
        "_size",
        "_transport",
        "deadline",
        "phase",
        "write_deadline",
    )

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._queue: deque[Exchange] = deque()
        self._current = Exchange(self)
        self._chunks: list[bytes] = []
        self._lines: list[tuple[bytes, bytes]] = []
        self._size = self._raw = self._begun = self._discarded = 0
        self._continue = self._replay = self._eof = self._paused = False
        self.phase = HEAD
        self.deadline = math.inf
        self.write_deadline = math.inf

    # -- transport ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self.deadline = self._loop.time() + self._host.settings.headers_seconds
        if not self._host.opened(self):
            self._refuse(answers.BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase = CLOSED
        self._queue.clear()
        self._chunks.clear()
        self._host.closed(self)

    def eof_received(self) -> bool:
        """The client sent all it will send. It may still read."""
        self._eof = True
        return bool(self._queue) and self.phase < LINGER

    def pause_writing(self) -> None:
        self.write_deadline = self._loop.time() + WRITE_SECONDS
        self._hold_reading()

    def resume_writing(self) -> None:
        self.write_deadline = math.inf
        self._resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.phase >= LAST:
            self._discard(len(data))
            return
        before = self.phase
        self._begun = 0
        self._feed(data)
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
        if len(self._queue) > settings.max_pipelined:
            self._hold_reading()

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

    # -- parsing ------------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        for _ in range(MAX_UPGRADES):
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self.phase < LAST:
                    data = self._without_upgrade() + data[upgrade.args[0] :]
                    continue
            except httptools.HttpParserCallbackError as error:
                if not isinstance(error.__context__, _Refused):
                    log.error("a request could not be handled", exc_info=error.__context__)
                    self._failed()
            except httptools.HttpParserError:
                self._refuse(answers.BAD_REQUEST)
            return
        self._refuse(answers.BAD_REQUEST)

    def _without_upgrade(self) -> bytes:
        """The head of a request that asks for another protocol, without that wish: it may be ignored (RFC 9110 7.8).

        llhttp does not read the body of such a request, so it is parsed again. Java's client sends these.
        """
        exchange = self._current
        self._replay = False
        self._parser = httptools.HttpRequestParser(self)
        close = any(name == b"connection" and b"close" in value.lower() for name, value in exchange.fields)
        lines = [b"%b %b HTTP/%b" % (exchange.method, exchange.target, exchange.version.encode("ascii"))]
        lines += [b"%b: %b" % field for field in exchange.fields if field[0] not in _DROPPED]
        if close:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        self._current = Exchange(self)
        if self._chunks:
            self._chunks = []
        self._size = 0
        if self._lines:
            self._lines = []
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
        self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self._current
        parser = self._parser
        lines, self._lines = self._lines, []  # what comes now are trailers
        exchange.method = parser.get_method()
        exchange.version = version = parser.get_http_version()
        size = hosts = length = 0
        chunked = expects = False
        fields = exchange.fields
        for raw, value in lines:
            name = raw.lower()
            fields.append((name, value))
            size += len(name) + len(value)
            if name in _CHECKED:
                value = value.rstrip(b" \t")
                if name == b"host":
                    hosts += 1
                elif name == b"content-length":
                    length = int(value)
                elif name == b"expect":
                    expects = value.lower() == b"100-continue"
                else:
                    chunked = True
                    if value.lower() != b"chunked":
                        self._stop(answers.BAD_REQUEST)
        if size + 4 * len(fields) > self._host.settings.max_header_bytes:
            self._stop(answers.HEADERS_TOO_LARGE)
        current = version == "1.1"
        if (hosts != 1 and (current or hosts)) or (not current and (version != "1.0" or chunked)):
            self._stop(answers.BAD_REQUEST)
        if exchange.method == b"CONNECT":
            self._stop(answers.METHOD_NOT_ALLOWED)
        self._replay = parser.should_upgrade()
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
        if self._lines:
            self._trailers()
        exchange = self._current
        chunks = self._chunks
        if chunks:
            exchange.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
        exchange.keep = self._parser.should_keep_alive()
        self._continue = False
        self.phase = IDLE if exchange.keep else LAST
        self.deadline = 0.0 if exchange.keep else math.inf
        self._dispatch(exchange)
        if not exchange.keep:
            raise _Refused

    def _trailers(self) -> None:
        """Fields after the body are bounded like those before it, and forgotten."""
        size = sum(len(name) + len(value) + 4 for name, value in self._lines)
        self._lines = []
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

    def _dispatch(self, exchange: Exchange) -> None:
        exchange.started = self._loop.time()
        self._queue.append(exchange)
        self._host.handler.handle(exchange)

    def _stop(self, answer: Answer) -> None:
        """From a callback of the parser: refuse, and parse no further."""
        self._refuse(answer)
        raise _Refused

    def _refuse(self, answer: Answer) -> None:
        """Give ``answer`` after those still owed, then end the connection."""
        if self.phase >= LAST:
            return
        exchange = self._current
        if exchange.started:  # it was a whole request with an answer of its own; what came after it is at fault
            exchange = Exchange(self)
        self._last()
        exchange.keep = False
        exchange.started = self._loop.time()
        self._queue.append(exchange)
        exchange.answer(answer)

    def _failed(self) -> None:
        """A defect of ours met a request: its sender still gets an answer."""
        exchange = self._current
        if exchange.started and exchange.reply is None:
            self._last()
            exchange.keep = False
            exchange.answer(answers.INTERNAL)
        else:
            self._refuse(answers.INTERNAL)

    def _last(self) -> None:
        self._continue = False
        self.phase = LAST
        self.deadline = math.inf
        self._discarded = 1  # bytes may have been left unparsed: close lingering

    # -- answering ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write every answer whose turn it is."""
        queue = self._queue
        host = self._host
        while queue and self.phase < LINGER:
            exchange = queue[0]
            answer = exchange.reply
            if answer is None:
                return
            queue.popleft()
            if exchange.keep and exchange.version == "1.1" and exchange.method != b"HEAD" and not host.draining:
                self._transport.write(host.renderer.kept(answer))
            else:
                self._write_special(exchange, answer)
            host.handler.answered(exchange, answer)
        if queue or self.phase >= LINGER:
            return
        if self._continue and self.phase == BODY:
            self._continue = False
            self._transport.write(answers.CONTINUE)
        if self._eof:
            self._close()
        elif self._paused:
            self._resume_reading()

    def _write_special(self, exchange: Exchange, answer: Answer) -> None:
        body = exchange.method != b"HEAD"
        stay = exchange.keep and (not self._host.draining or bool(self._queue))
        words = b"" if exchange.version == "1.1" else b"keep-alive"
        self._transport.write(self._host.renderer.render(answer, words if stay else b"close", body=body))
        if not stay:
            if exchange.keep or self._discarded:
                self._linger()
            else:
                self._close()

    def _linger(self) -> None:
        self._queue.clear()
        self.phase = LINGER
        self.deadline = self._loop.time() + DISCARD_SECONDS
        if self._eof or self._transport.is_closing():
            self._close()
        elif self._transport.can_write_eof():
            self._transport.write_eof()
            self._resume_reading()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > MAX_DISCARD:
            self._hold_reading()  # what the kernel holds of the rest is enough for most senders to finish

    def _close(self) -> None:
        self._queue.clear()
        self.phase = CLOSED
        self.deadline = self._loop.time() + WRITE_SECONDS
        self._transport.close()

    # -- flow and time ------------------------------------------------------------------------------------------------

    def _hold_reading(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused and self._discarded <= MAX_DISCARD and self.write_deadline == math.inf:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    @property
    def busy(self) -> bool:
        """Whether a request is here in part or unanswered, or its answer may not have arrived."""
        return bool(self._queue) or self.phase == BODY or (self.phase == HEAD and self._raw > 0)

    def expire(self, now: float) -> None:
        """Act on deadlines that have passed. ``now``: the loop's clock."""
        if now >= self.write_deadline or (self.phase == CLOSED and now >= self.deadline):
            self._transport.abort()
        elif now < self.deadline or self.deadline == 0.0 or (self.phase == IDLE and self._queue):
            return
        elif self.phase == BODY or (self.phase == HEAD and self._raw):
            self._refuse(answers.REQUEST_TIMEOUT)
        elif self.phase != CLOSED:
            self._close()

    def retire(self) -> None:
        """The server stops: close unless a request is in hand. Its bytes may be on the way, so linger."""
        if not self.busy and self.phase < LAST:
            self._linger()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()
