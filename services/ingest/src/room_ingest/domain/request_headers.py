"""From a request's headers to the record's: the allow-list, secrets as hashes, the trace. Total over any bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

import orjson

from room_common.contracts import envelope
from room_common.contracts.envelope import (
    KEPT_HEADERS,
    MAX_HEADER_VALUE,
    carries_secret,
    carries_signature,
)
from room_common.domain.credentials import hashed_credential

Fields = Sequence[tuple[bytes, bytes]]
"""Header lines as they came, but names in lower case; values may end with spaces."""

_KEPT: Final = {name.encode("ascii"): name for name in KEPT_HEADERS}
_MAX_NAME: Final = 64
"""Bytes of the name of a header that is kept for what its name says; longer ones are not looked at."""
_SPACE: Final = b" \t"
_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Kept:
    """What of a request's headers travels with the record."""

    __slots__ = ("content_type", "http", "traceparent")

    def __init__(self, http: bytes, content_type: bytes | None, traceparent: bytes | None) -> None:
        self.http = http
        self.content_type = content_type
        self.traceparent = traceparent


def keep(fields: Fields) -> Kept:
    """The allow-listed headers as a JSON object, and the two that are record headers of their own.

    Values are read as Latin-1, as HTTP defines them. A header that occurs twice is joined with a comma; of one that
    holds a secret the last counts, and only its SHA-256 travels (:func:`hashed_credential`).
    """
    found: dict[str, str] = {}
    content_type = traceparent = None
    for name, value in fields:
        kept = _KEPT.get(name)
        if kept is None:
            if name == b"traceparent":
                value = value.rstrip(_SPACE)
                traceparent = value if _TRACEPARENT.fullmatch(value) else traceparent
                continue
            kept, use = _use(name) if len(name) <= _MAX_NAME else ("", "none")
            if use != "as_sent":
                if use == "hashed":
                    found[kept] = hashed_credential(kept, value.rstrip(_SPACE))
                continue
        value = value.rstrip(_SPACE)
        text = value[:MAX_HEADER_VALUE].decode("latin-1")
        found[kept] = f"{found[kept]}, {text}"[:MAX_HEADER_VALUE] if kept in found else text
        if name == b"content-type" and content_type is None:
            content_type = value if value.isascii() else text.encode()
    return Kept(orjson.dumps(found), content_type, traceparent)


@lru_cache(maxsize=1024)
def _use(name: bytes) -> tuple[str, Literal["none", "as_sent", "hashed"]]:
    """What becomes of a header that is not on the list of those kept as they are."""
    text = name.decode("latin-1")
    if carries_secret(text):
        return text, "hashed"
    return (text, "as_sent") if carries_signature(text) else (text, "none")


def id_text(unix_us: int, randomness: bytes) -> bytes:
    """``str(room_common.domain.ids.uuid7(...))`` as bytes, without the cost of a UUID object."""
    milliseconds, microseconds = divmod(unix_us, 1000)
    digits = b"%012x7%03x%016x" % (
        milliseconds & 0xFFFF_FFFF_FFFF,
        microseconds * 4096 // 1000,
        int.from_bytes(randomness[:8], "big") & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000,
    )
    return b"%b-%b-%b-%b-%b" % (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])


def new_traceparent(randomness: bytes) -> bytes:
    """A sampled trace that starts here, from 24 random bytes."""
    digits = randomness[:24].hex()
    return f"00-{digits[:32]}-{digits[32:48]}-01".encode("ascii")


def record_headers(
    kept: Kept,
    *,
    token_hex: bytes,
    received_at_us: int,
    randomness: bytes,
    query: bytes,
    too_large: bool,
    channel: bytes,
) -> list[tuple[str, bytes]]:
    """The record headers of one request, as ``contracts.envelope`` reads them. ``randomness``: 32 bytes."""
    headers = [
        (envelope.ID, id_text(received_at_us, randomness)),
        (envelope.TOKEN_SHA256, token_hex),
        (envelope.RECEIVED_AT, b"%d" % received_at_us),
        (envelope.HTTP, kept.http),
        (envelope.OUTCOME, b"too_large" if too_large else b"ok"),
        (envelope.TRACEPARENT, kept.traceparent or new_traceparent(randomness[8:])),
    ]
    if kept.content_type is not None:
        headers.append((envelope.CONTENT_TYPE, kept.content_type))
    if query:
        headers.append((envelope.QUERY, query))
    if channel:
        headers.append((envelope.CHANNEL, channel))
    return headers
