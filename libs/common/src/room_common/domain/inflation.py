"""Content codings undone within a bound: no input, however small, makes more than ``limit`` + 1 bytes per coding."""

from __future__ import annotations

import zlib

from room_common.domain.reasons import Reason

_GZIP = zlib.MAX_WBITS | 16
_ZLIB = zlib.MAX_WBITS
_RAW_DEFLATE = -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
# RFC 9110 lets codings be stacked and RFC 1952 lets members follow each other; real senders send one of each.
_MAX_CODINGS = 3
_MAX_MEMBERS = 64
# "utf-8" is no content coding, but senders put it there.
_NO_CODING = frozenset({"identity", "utf-8", "utf8"})


def inflate(body: bytes, content_encoding: str | None, limit: int) -> bytes | Reason:
    """The body with its gzip and deflate codings undone, or ``too_large``, ``bad_compression``, ``unsupported_...``."""
    codings = [coding for part in (content_encoding or "").split(",") if (coding := part.strip().lower())]
    codings = [coding for coding in codings if coding not in _NO_CODING]
    if len(codings) > _MAX_CODINGS:
        return Reason.UNSUPPORTED_COMPRESSION
    inflated: bytes | Reason = body
    for coding in reversed(codings):
        if isinstance(inflated, Reason):
            break
        inflated = _undo(coding, inflated, limit)
    if isinstance(inflated, bytes) and len(inflated) > limit:
        return Reason.TOO_LARGE
    return inflated


def _undo(coding: str, body: bytes, limit: int) -> bytes | Reason:
    if coding in ("gzip", "x-gzip"):
        return _gunzip(body, limit)
    if coding == "deflate":
        # RFC 9110 means zlib's format; some senders send the bare stream.
        wrapped = _stream(body, _ZLIB, limit)
        return _stream(body, _RAW_DEFLATE, limit) if wrapped is Reason.BAD_COMPRESSION else wrapped
    return Reason.UNSUPPORTED_COMPRESSION


def _gunzip(body: bytes, limit: int) -> bytes | Reason:
    whole = bytearray()
    rest = body
    for _ in range(_MAX_MEMBERS):
        found = _member(rest, _GZIP, limit - len(whole))
        if isinstance(found, Reason):
            return found
        member, rest = found
        whole += member
        if not rest.strip(b"\0"):
            return bytes(whole)
        if not rest.startswith(_GZIP_MAGIC):
            break
    return Reason.BAD_COMPRESSION


def _stream(body: bytes, window_bits: int, limit: int) -> bytes | Reason:
    found = _member(body, window_bits, limit)
    if isinstance(found, Reason):
        return found
    member, rest = found
    return Reason.BAD_COMPRESSION if rest else member


def _member(body: bytes, window_bits: int, limit: int) -> tuple[bytes, bytes] | Reason:
    """One compressed stream and what follows it. Stops at the first byte past ``limit``."""
    stream = zlib.decompressobj(window_bits)
    try:
        inflated = stream.decompress(body, limit + 1)
    except zlib.error:
        return Reason.BAD_COMPRESSION
    if len(inflated) > limit:
        return Reason.TOO_LARGE
    return (inflated, stream.unused_data) if stream.eof else Reason.BAD_COMPRESSION
