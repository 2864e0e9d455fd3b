"""Cursors: where a page of a list ended. Opaque to callers, and total over whatever they send back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import orjson

from room_common.errors import Refused


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError  # no text in PostgreSQL has it
    return value


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "t": datetime.fromisoformat,
    "u": UUID,
    "i": int,
    "s": _text,
}
MAX_CURSOR: Final = 1600
"""Characters: a name has up to 120, of up to 4 bytes each."""


def encode_cursor(key: Sequence[object]) -> str:
    """A sort key of times, UUIDs, integers and texts as one URL-safe word. Times come back in UTC."""
    return base64.urlsafe_b64encode(orjson.dumps([_tagged(value) for value in key])).rstrip(b"=").decode()


def decode_cursor(text: str, shape: str) -> tuple[Any, ...]:
    """The sort key in a cursor. ``shape`` names the kinds expected, for example ``tu``.

    Raises ``Refused('bad_cursor')`` for anything that :func:`encode_cursor` would not have made for that shape.
    """
    try:
        if len(text) > MAX_CURSOR or not text.isascii():
            raise ValueError
        values = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ValueError
        key = tuple(_READERS[kind](value[1:]) for kind, value in zip(shape, values, strict=True))
        if any(isinstance(value, int) and abs(value) >= 1 << 31 for value in key):
            raise ValueError
        # Only what reads back as it was written is ours: no naive times, odd offsets or spare characters.
        if encode_cursor(key) != text:
            raise ValueError
    except (ValueError, TypeError, KeyError, binascii.Error, OverflowError):
        raise Refused("bad_cursor", "this cursor is not one that a list gave; start again without it") from None
    return key


def _tagged(value: object) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a cursor holds times with an offset")
        return "t" + value.astimezone(UTC).isoformat()
    if isinstance(value, str):
        return "s" + value
    return ("u" if isinstance(value, UUID) else "i") + str(value)
