"""Identifiers: UUID version 7, made from arguments so that callers own the clock and the randomness."""

from __future__ import annotations

from typing import Final
from uuid import UUID

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_RAND_A_MASK: Final = (1 << 12) - 1
_RAND_B_MASK: Final = (1 << 62) - 1


def uuid7(unix_us: int, randomness: bytes) -> UUID:
    """A UUIDv7 (RFC 9562) whose first 48 bits are milliseconds and whose next 12 bits order the ids of one millisecond.

    ``unix_us`` is microseconds since the epoch, ``randomness`` at least 8 bytes. The sub-millisecond part is
    RFC 9562's method 3, so that ids made by one process sort by time.
    """
    milliseconds, microseconds = divmod(unix_us, 1000)
    sub_millisecond = (microseconds * 4096 // 1000) & _RAND_A_MASK
    tail = int.from_bytes(randomness[:8], "big") & _RAND_B_MASK
    return UUID(int=(milliseconds & ((1 << 48) - 1)) << 80 | _VERSION | sub_millisecond << 64 | _VARIANT | tail)
