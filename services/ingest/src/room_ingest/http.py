"""One HTTP/1.x connection, as an asyncio.Protocol on httptools: its answers, its flow and its deadlines.

Answers leave in the order of their requests. A connection that ends early with an answer is closed *lingering*: the
sending side first, then, while the client may still be writing, what arrives is read away for a while, since a close
with unread bytes makes the kernel reset the connection and the client may never see its answer.

The owner (:class:`~room_ingest.reading.Host`) supplies limits, the handler, the clock of answers, and a sweep that
calls ``expire``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Final, cast

import httptools

from room_ingest import answers
from room_ingest.answers import Answer
from room_ingest.exchange import Exchange
from room_ingest.reading import BODY, CLOSED, HEAD, IDLE, LAST, LINGER, MAX_DISCARD, Host, RequestReader

DISCARD_SECONDS: Final = 2.0
WRITE_SECONDS: Final = 10.0
"""How long a client may leave answers unread."""


class Connection(RequestReader):
    """See the module."""

    __slots__ = ("_discarded", "_eof", "_paused", "_queue", "_transport", "write_deadline")

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(host, loop)
        self._queue: deque[Exchange] = deque()
        self._discarded = 0
        self._eof = self._paused = False
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
        del self._parser, self._current  # they refer back: without them no collector is needed to free the connection

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
        self._read(data)
        if len(self._queue) > self._host.settings.max_pipelined and self.phase < LAST:
            self._hold_reading()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _new_exchange(self) -> Exchange:
        return Exchange(self)

    def _dispatch(self, exchange: Exchange) -> None:
        exchange.started = self._loop.time()
        self._queue.append(exchange)
        self._host.handler.handle(exchange)

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
