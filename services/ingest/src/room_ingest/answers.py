"""Every answer ingest gives, byte for byte, and their rendering with the second's Date."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

_JSON: Final = b"application/json"


class Answer:
    """One answer. ``name`` is its bounded name in metrics. Compared by identity."""

    __slots__ = ("body", "content_type", "extra", "name", "status")

    def __init__(
        self, name: str, status: int, body: bytes, *, content_type: bytes = _JSON, extra: tuple[bytes, ...] = ()
    ) -> None:
        self.name = name
        self.status = status
        self.body = body
        self.content_type = content_type
        self.extra = extra


def _error(name: str, status: int, *extra: bytes) -> Answer:
    return Answer(name, status, b'{"ok":false,"error":"%b"}' % name.encode("ascii"), extra=extra)


OK: Final = Answer("ok", 200, b'{"ok":true}')
OVERFLOW: Final = Answer("overflow", 200, b'{"ok":true}')
"""Durable too, in the overflow table."""
UNKNOWN_TOKEN: Final = Answer("unknown_token", 200, b'{"ok":true}')
TOO_LARGE: Final = _error("payload_too_large", 200)
BAD_REQUEST: Final = _error("bad_request", 400)
FORBIDDEN: Final = _error("forbidden", 403)
NOT_FOUND: Final = _error("not_found", 404)
METHOD_NOT_ALLOWED: Final = _error("method_not_allowed", 405, b"allow: POST")
REQUEST_TIMEOUT: Final = _error("request_timeout", 408)
TARGET_TOO_LONG: Final = _error("target_too_long", 414)
HEADERS_TOO_LARGE: Final = _error("headers_too_large", 431)
INTERNAL: Final = _error("internal_error", 500)
UNAVAILABLE: Final = _error("unavailable", 503, b"retry-after: 2")
BUSY: Final = _error("busy", 503, b"retry-after: 1")
RATE_LIMITED: Final = _error("rate_limited", 503, b"retry-after: 1")


class Wording:
    """How a request is told that it was taken. A token that is nobody's gets the same, so that nothing is learnt."""

    __slots__ = ("ok", "overflow", "unknown_token")

    def __init__(self, ok: Answer, overflow: Answer, unknown_token: Answer) -> None:
        self.ok = ok
        self.overflow = overflow
        self.unknown_token = unknown_token


def _wording(body: bytes, content_type: bytes) -> Wording:
    ok, overflow, unknown_token = (
        Answer(kind.name, 200, body, content_type=content_type) for kind in (OK, OVERFLOW, UNKNOWN_TOKEN)
    )
    return Wording(ok, overflow, unknown_token)


JSON: Final = Wording(OK, OVERFLOW, UNKNOWN_TOKEN)
EMPTY: Final = _wording(b"", b"text/plain; charset=utf-8")
TWIML: Final = _wording(b"<Response/>", b"text/xml; charset=utf-8")
"""Twilio takes any text in the answer for a message to the person: this is none."""

HANDSHAKE: Final = Answer("handshake", 200, b"")
"""Stands for every echo in metrics."""

FIXED: Final = (
    OK,
    OVERFLOW,
    UNKNOWN_TOKEN,
    TOO_LARGE,
    BAD_REQUEST,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    REQUEST_TIMEOUT,
    TARGET_TOO_LONG,
    HEADERS_TOO_LARGE,
    INTERNAL,
    UNAVAILABLE,
    BUSY,
    RATE_LIMITED,
    *(answer for wording in (EMPTY, TWIML) for answer in (wording.ok, wording.overflow, wording.unknown_token)),
)

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def echo(text: bytes) -> Answer:
    """A handshake's answer: nothing but the text, and no browser takes it for anything else."""
    return Answer(
        HANDSHAKE.name,
        200,
        text,
        content_type=b"text/plain; charset=utf-8",
        extra=(b"x-content-type-options: nosniff",),
    )


class Renderer:
    """Answers as bytes on the wire. Fixed ones are rendered once per second; ``tick`` brings the date forward."""

    def __init__(self) -> None:
        self._kept: dict[Answer, bytes] = {}
        self._date = b""
        self.tick(time.time())

    def tick(self, now: float) -> None:
        """Set the Date of answers from now on. ``now``: seconds since the epoch."""
        date = formatdate(now, usegmt=True).encode("ascii")
        if date != self._date:
            self._date = date
            self._kept = {answer: self.render(answer, b"") for answer in FIXED}

    def kept(self, answer: Answer) -> bytes:
        """The answer on a connection that stays open."""
        return self._kept.get(answer) or self.render(answer, b"")

    def render(self, answer: Answer, connection: bytes, *, body: bool = True) -> bytes:
        """The answer with a Connection header (``close``, ``keep-alive``, or empty for none)."""
        lines = [
            b"HTTP/1.1 %d %b" % (answer.status, HTTPStatus(answer.status).phrase.encode("ascii")),
            b"date: " + self._date,
            b"content-type: " + answer.content_type,
            b"content-length: %d" % len(answer.body),
            *answer.extra,
        ]
        if connection:
            lines.append(b"connection: " + connection)
        return b"\r\n".join(lines) + b"\r\n\r\n" + (answer.body if body else b"")
