"""Cutting a text into parts that a channel takes: at a paragraph, at a line, else hard (behaviour, outbound)."""

from __future__ import annotations

import unicodedata
from typing import Final

_EARLIEST: Final = 4
"""A break counts from a quarter of the limit on: one right at the beginning would leave a stub of a part."""

_ZERO_WIDTH_JOINER: Final = "\u200d"
_MAX_CLUSTER: Final = 64
"""Characters that a cut moves back at most, to spare one that is put together from several."""


def split(text: str, limit: int) -> list[str]:
    """The parts of ``text``, each of at most ``limit`` UTF-16 code units; joined they are the text again.

    Only parts of nothing but white space are left out, since providers refuse them. UTF-16 is what Telegram counts
    in, and never less than characters. The same text and limit give the same parts: a resend counts on it.
    """
    parts = []
    start = 0
    while start < len(text):
        end = _cut(text, start, limit)
        parts.append(text[start:end])
        start = end
    return [part for part in parts if part.strip()]


def _cut(text: str, start: int, limit: int) -> int:
    """Where the part that begins at ``start`` ends."""
    end = _reach(text, start, limit)
    if end == len(text):
        return end
    earliest = start + (end - start) // _EARLIEST
    for separator in ("\n\n", "\n"):
        found = text.rfind(separator, earliest, end)
        if found >= 0:
            return found + len(separator)
    for cut in range(end, max(start, end - _MAX_CLUSTER), -1):
        if not _belong_together(text[cut - 1], text[cut]):
            return cut
    return end


def _reach(text: str, start: int, limit: int) -> int:
    """The furthest end of a part: at least one character, so that splitting always ends."""
    units = 0
    for position in range(start, min(len(text), start + limit)):
        units += 2 if ord(text[position]) > 0xFFFF else 1
        if units > limit:
            return max(position, start + 1)
    return min(len(text), start + limit)


def _belong_together(before: str, after: str) -> bool:
    """Whether a cut between the two would tear what readers see as one character. An approximation of UAX #29."""
    return (
        _ZERO_WIDTH_JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
        or 0x1F3FB <= ord(after) <= 0x1F3FF
        or (0x1F1E6 <= ord(before) <= 0x1F1FF and 0x1F1E6 <= ord(after) <= 0x1F1FF)
        or (before == "\r" and after == "\n")
    )
