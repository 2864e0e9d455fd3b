"""Kafka's record format, version 2, written from parts that are bytes already (KIP-98, "Message Format").

A record is made in two halves: its headers when it arrives, since most of them are constants, and the rest when its
place in a batch is known. The checksum of a batch is the caller's: it needs a C function.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

_CHECKED: Final = struct.Struct(">hiqqqhii")
_HEAD: Final = struct.Struct(">qiibI")
_MAGIC: Final = 2
_NO_LEADER_EPOCH: Final = -1
_NOT_COUNTED: Final = 12
"""Bytes of a batch before what its length counts."""
_COUNTED_HEAD: Final = _HEAD.size - _NOT_COUNTED
HEAD_BYTES: Final = _HEAD.size + _CHECKED.size
RECORD_OVERHEAD: Final = 24
"""At most so many bytes of a record are neither key, value nor headers: its length, attributes, numbers and sizes."""


def _varint(number: int) -> bytes:
    """ZigZag and base 128, as protocol buffers write signed numbers."""
    number = number << 1 if number >= 0 else (number << 1) ^ -1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL: Final = tuple(_varint(number) for number in range(8192))


def varint(number: int) -> bytes:
    """A signed number as Kafka writes it."""
    return _SMALL[number] if 0 <= number < 8192 else _varint(number)


def header_name(name: str) -> bytes:
    """What stands before a header's value: its name. The value follows with its own length."""
    raw = name.encode()
    return varint(len(raw)) + raw


def header(name: str, value: bytes) -> bytes:
    """One whole header."""
    return header_name(name) + varint(len(value)) + value


def headers(pairs: Sequence[tuple[str, bytes]]) -> bytes:
    """All headers of a record, with their number."""
    return varint(len(pairs)) + b"".join(header(name, value) for name, value in pairs)


def record(offset: int, key: bytes, value: bytes, headers: bytes) -> Iterable[bytes]:
    """The pieces of a record ``offset`` places after the first of its batch, all of one time."""
    place = varint(offset)
    key_size, value_size = varint(len(key)), varint(len(value))
    size = len(place) + len(key_size) + len(key) + len(value_size) + len(value) + len(headers) + 2
    return varint(size), b"\0\0", place, key_size, key, value_size, value, headers


def checked_head(count: int, time_ms: int, producer: tuple[int, int], sequence: int) -> bytes:
    """What stands before the records in the part of a batch that its checksum is over. ``producer``: id and epoch."""
    return _CHECKED.pack(0, count - 1, time_ms, time_ms, *producer, sequence, count)


def batch(checked: bytes, checksum: int) -> bytes:
    """The whole batch. ``checksum``: CRC-32C of ``checked``."""
    return _HEAD.pack(0, _COUNTED_HEAD + len(checked), _NO_LEADER_EPOCH, _MAGIC, checksum) + checked
