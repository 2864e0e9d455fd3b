"""From a request's headers to the record's: the allow-list, secrets as hashes, the trace. Total over any bytes."""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from uuid import UUID

import orjson

from room_common.contracts import envelope
from room_common.contracts.envelope import (
    KEPT_HEADERS,
    MAX_HEADER_VALUE,
    carries_secret,
    carries_signature,
)
from room_common.domain.credentials import hashed_credential
from room_ingest.domain.record_format import header, header_name, varint

_SPACE: Final = b" \t"
_MAX_NAME: Final = 64
"""Bytes of the name of a header that is kept for what its name says; longer ones are not looked at."""
_PLANS: Final = 512
_PLANNED_NAMES: Final = 64
_PLANNED_BYTES: Final = 2048
"""What is remembered of headers by their names is bounded: so many sets of names, each of so many and so long."""
_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACEPARENT_BYTES: Final = 55

_ID: Final = header_name(envelope.ID) + varint(36)
_RECEIVED_AT: Final = header_name(envelope.RECEIVED_AT)
_HTTP: Final = header_name(envelope.HTTP)
_OUTCOMES: Final = (header(envelope.OUTCOME, b"ok"), header(envelope.OUTCOME, b"too_large"))
_TRACE: Final = header_name(envelope.TRACEPARENT) + varint(_TRACEPARENT_BYTES)
_CONTENT_TYPE: Final = header_name(envelope.CONTENT_TYPE)
_ALWAYS: Final = 6
_MICROSECONDS: Final = tuple(b"%03x" % (microseconds * 4096 // 1000) for microseconds in range(1000))
_VARIANT: Final = {digit: b"%x" % (int(chr(digit), 16) & 3 | 8) for digit in b"0123456789abcdef"}


_NONE, _AS_SENT, _CONTENT_TYPE_ITSELF, _HASHED, _TRACE_ITSELF = range(5)
"""What becomes of a header. Plain numbers: an enum's members cost on every request."""


class Kept:
    """What of a request's headers travels with the record."""

    __slots__ = ("content_type", "http", "traceparent")

    def __init__(self, http: bytes, content_type: bytes | None, traceparent: bytes | None) -> None:
        self.http = http
        self.content_type = content_type
        self.traceparent = traceparent


class Plan:
    """What the names of a request's headers say, in the order they came.

    ``kept``: place, use and lower-case name of what travels. ``length`` and ``expect`` are the places of the last
    Content-Length and Expect, -1 without one, ``codings`` those of Transfer-Encoding, ``hosts`` how many Hosts there
    are. ``size`` is the bytes of all names, colons and line ends.
    """

    __slots__ = ("codings", "expect", "hosts", "kept", "length", "size")

    def __init__(self, names: Sequence[bytes]) -> None:
        self.kept: list[tuple[int, int, str]] = []
        self.codings: list[int] = []
        self.hosts = 0
        self.length = self.expect = -1
        self.size = sum(map(len, names)) + 4 * len(names)
        for place, name in enumerate(names):
            if len(name) <= _MAX_NAME:
                self._place(place, name.lower())

    def _place(self, place: int, name: bytes) -> None:
        if name == b"host":
            self.hosts += 1
        elif name == b"content-length":
            self.length = place
        elif name == b"expect":
            self.expect = place
        elif name == b"transfer-encoding":
            self.codings.append(place)
        else:
            text = name.decode("latin-1")
            use = _use(text)
            if use != _NONE:
                self.kept.append((place, use, text))


_remembered_plan: Final = lru_cache(maxsize=_PLANS)(Plan)


NO_HEADERS: Final = Plan(())


def plan(names: tuple[bytes, ...]) -> Plan:
    """The plan for these names. A sender's are the same with every request, so that few are made."""
    if len(names) > _PLANNED_NAMES or sum(map(len, names)) > _PLANNED_BYTES:
        return Plan(names)
    return _remembered_plan(names)


def keep(plan: Plan, values: Sequence[bytes]) -> Kept:
    """The allow-listed headers as a JSON object, and the two that are record headers of their own.

    Values are read as Latin-1, as HTTP defines them; they may end with spaces. A header that occurs twice is joined
    with a comma; of one that holds a secret the last counts, and only its SHA-256 travels
    (:func:`hashed_credential`).
    """
    found: dict[str, str] = {}
    content_type = traceparent = None
    for place, use, name in plan.kept:
        value = values[place].rstrip(_SPACE)
        if use == _HASHED:
            found[name] = hashed_credential(name, value)
        elif use == _TRACE_ITSELF:
            traceparent = value if _TRACEPARENT.fullmatch(value) else traceparent
        else:
            text = value[:MAX_HEADER_VALUE].decode("latin-1")
            found[name] = f"{found[name]}, {text}"[:MAX_HEADER_VALUE] if name in found else text
            if use == _CONTENT_TYPE_ITSELF and content_type is None:
                content_type = value if value.isascii() else text.encode()
    return Kept(orjson.dumps(found), content_type, traceparent)


def _use(name: str) -> int:
    """What becomes of a header, by its name in lower case."""
    if name == "content-type":
        return _CONTENT_TYPE_ITSELF
    if name == "traceparent":
        return _TRACE_ITSELF
    if carries_secret(name):
        return _HASHED
    return _AS_SENT if name in KEPT_HEADERS or carries_signature(name) else _NONE


def id_text(unix_us: int, digits: bytes) -> bytes:
    """``str(room_common.domain.ids.uuid7(...))`` as bytes, without the cost of a UUID object. ``digits``: at least 16
    random hex digits."""
    milliseconds, microseconds = divmod(unix_us, 1000)
    return b"%b%b-%b%b-%b" % (
        _milliseconds(milliseconds),
        _MICROSECONDS[microseconds],
        _VARIANT[digits[0]],
        digits[1:4],
        digits[4:16],
    )


@lru_cache(maxsize=4)
def _milliseconds(milliseconds: int) -> bytes:
    return b"%08x-%04x-7" % (milliseconds >> 16 & 0xFFFF_FFFF, milliseconds & 0xFFFF)


def id_in(headers: bytes) -> UUID:
    """The id in headers that :func:`record_headers` made."""
    start = 1 + len(_ID)
    return UUID(headers[start : start + 36].decode("ascii"))


def new_traceparent(digits: bytes) -> bytes:
    """A sampled trace that starts here, from 48 random hex digits."""
    return b"00-%b-%b-01" % (digits[:32], digits[32:48])


def token_header(digest: bytes) -> bytes:
    """The record header that names a token by its SHA-256."""
    return header(envelope.TOKEN_SHA256, hexlify(digest))


def record_headers(
    kept: Kept,
    *,
    token: bytes,
    received_at_us: int,
    randomness: bytes,
    query: bytes,
    too_large: bool,
    channel: bytes,
) -> bytes:
    """The headers of one request's record, as ``contracts.envelope`` reads them, in Kafka's bytes.

    ``token`` is of :func:`token_header`; ``randomness``: 32 bytes.
    """
    digits = hexlify(randomness)
    received_at = b"%d" % received_at_us
    http, content_type = kept.http, kept.content_type
    count = _ALWAYS
    more = b""
    if content_type is not None:
        count += 1
        more = _CONTENT_TYPE + varint(len(content_type)) + content_type
    if query:
        count += 1
        more += header(envelope.QUERY, query)
    if channel:
        count += 1
        more += header(envelope.CHANNEL, channel)
    return b"".join(
        (
            varint(count),
            _ID,
            id_text(received_at_us, digits),
            token,
            _RECEIVED_AT,
            varint(len(received_at)),
            received_at,
            _HTTP,
            varint(len(http)),
            http,
            _OUTCOMES[too_large],
            _TRACE,
            kept.traceparent or new_traceparent(digits[16:]),
            more,
        )
    )
