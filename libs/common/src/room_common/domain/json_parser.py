"""JSON text to a view, strictly and within bounds.

orjson reads first. Where it would lose something (long numbers, duplicate keys, NUL) or refuses what can still be shown
(lone surrogates, numbers beyond a double), the strict path reads the same text again with Python's scanner and notes
each change. The strict path decides all failures, so that a reason does not depend on the path taken.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn, cast

import orjson

from room_common.domain.json_slices import nests_deeper
from room_common.domain.jsonview import Json, storable_text
from room_common.domain.reasons import Reason

MAX_DEPTH = 64
MAX_KEYS = 10_000
MAX_EXPONENT = 400
MAX_CHANGES = 50
_MAX_POINTER = 200

# What orjson reads without a trace but not exactly: 16 or more digits in a row (a double holds 15 of any decimal), an
# exponent of three digits, an escaped NUL. Inside strings these are harmless and merely cost the strict path.
_DOUBTFUL = re.compile(rb"[0-9](?:[0-9.]{15}|[eE][+-]?[0-9]{3})")
_ESCAPED_NUL = re.compile(rb"\\u0000")
# The same, coarsely, in text of which only the classes of characters are left: many times faster than the expression.
_CLASSES = bytes.maketrans(b"0123456789.eE+-", b"00000000000ee++")
_COARSE = (b"0" * 16, b"0e000", b"0e+000")
# Every key matches this; so can text inside strings, but never the other way round.
_KEY = re.compile(rb'"[ \t\r\n]*+:')


@dataclass(frozen=True, slots=True)
class Parsed:
    """A view and what was changed to make it, such as ``nul_replaced at /a/0``; at most ``MAX_CHANGES`` and a count."""

    view: Json
    changes: tuple[str, ...] = ()


class _Pairs(list[tuple[str, object]]):
    """An object as written: its keys in order, duplicates included."""


class _NumberText(str):
    """A number that no Python number holds exactly, as its sender wrote it."""

    __slots__ = ()


class _Abort(ValueError):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def parse_json(text: str, utf8: bytes) -> Parsed | Reason:
    """Parse ``text`` (``utf8`` is the same text as bytes): any JSON value, or ``invalid_json``, ``too_deep``,
    ``too_many_keys``. Duplicate keys: the last one wins, as in PostgreSQL."""
    fast = _parse_exactly(utf8)
    if fast is not None:
        return fast
    if nests_deeper(utf8, MAX_DEPTH):
        return Reason.TOO_DEEP
    try:
        return _Settling().settle(_StrictReader().read(text))
    except _Abort as abort:
        return abort.reason
    except ValueError:
        return Reason.INVALID_JSON


def view_of_fields(fields: Iterable[tuple[str, str | list[str]]]) -> Parsed:
    """Named texts (a form's fields, a plain text) as an object."""
    return _Settling().settle(_Pairs(fields))


def _parse_exactly(utf8: bytes) -> Parsed | None:
    """orjson's reading where it is certainly complete and within the limits, else None."""
    if _doubtful(utf8):
        return None
    try:
        view = cast(Json, orjson.loads(utf8))
    except orjson.JSONDecodeError:
        return None
    keys, depth = _measure(view)
    if depth > MAX_DEPTH or keys > MAX_KEYS or keys != sum(1 for _ in _KEY.finditer(utf8)):
        return None
    return Parsed(view)


def _doubtful(utf8: bytes) -> bool:
    if _ESCAPED_NUL.search(utf8):
        return True
    classes = utf8.translate(_CLASSES)
    return any(part in classes for part in _COARSE) and _DOUBTFUL.search(utf8) is not None


def _measure(view: Json) -> tuple[int, int]:
    keys = depth = 0
    level: list[Json] = [view]
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        below: list[Json] = []
        for node in level:
            if isinstance(node, dict):
                keys += len(node)
                below.extend(node.values())
            elif isinstance(node, list):
                below.extend(node)
        level = below
    return keys, depth


class _StrictReader:
    """Python's JSON scanner, told to refuse NaN, to keep duplicates and to keep numbers exact."""

    def __init__(self) -> None:
        self._keys = 0

    def read(self, text: str) -> object:
        decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=_exact_integer,
            parse_float=_exact_float,
            parse_constant=_refuse_constant,
        )
        return decoder.decode(text)

    def _object(self, pairs: list[tuple[str, object]]) -> _Pairs:
        self._keys += len(pairs)
        if self._keys > MAX_KEYS:
            raise _Abort(Reason.TOO_MANY_KEYS)
        return _Pairs(pairs)


def _exact_integer(text: str) -> int | _NumberText:
    return int(text) if len(text.lstrip("-")) <= MAX_EXPONENT + 1 else _NumberText(text)


def _exact_float(text: str) -> float | _NumberText:
    """A double where it holds exactly what was written, else the text: an exponent is never expanded to digits."""
    exponent = text.lower().partition("e")[2].lstrip("+-0")
    if len(text) > MAX_EXPONENT or len(exponent) > 3:
        return _NumberText(text)
    number = float(text)
    exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(text)
    return number if exact else _NumberText(text)


def _refuse_constant(_: str) -> NoReturn:
    raise _Abort(Reason.INVALID_JSON)


class _Settling:
    """Turns what was read into a view and notes each change with its place (a JSON pointer)."""

    def __init__(self) -> None:
        self._changes: list[str] = []
        self._more = 0
        self._path: list[str] = []

    def settle(self, read: object) -> Parsed:
        view = self._value(read)
        changes = [*self._changes, f"and {self._more} more"] if self._more else self._changes
        return Parsed(view, tuple(changes))

    def _value(self, read: object) -> Json:
        if isinstance(read, _NumberText):
            self._note("number_as_text")
            return str(read)
        if isinstance(read, str):
            return self._text(read, "")
        if isinstance(read, _Pairs):
            return self._object(read)
        if isinstance(read, list):
            return [self._at(str(index), value) for index, value in enumerate(read)]
        return cast(Json, read)

    def _object(self, pairs: _Pairs) -> dict[str, Json]:
        view: dict[str, Json] = {}
        for written, value in pairs:
            key = self._text(written, "_in_key")
            if key in view:
                self._path.append(key)
                self._note("duplicate_key")
                self._path.pop()
            view[key] = self._at(key, value)
        return view

    def _at(self, step: str, value: object) -> Json:
        self._path.append(step)
        settled = self._value(value)
        self._path.pop()
        return settled

    def _text(self, text: str, where: str) -> str:
        settled = storable_text(text)
        if settled != text:
            if "\0" in text:
                self._note(f"nul_replaced{where}")
            if storable_text(text.replace("\0", "")) != text.replace("\0", ""):
                self._note(f"surrogate_replaced{where}")
        return settled

    def _note(self, kind: str) -> None:
        if len(self._changes) >= MAX_CHANGES:
            self._more += 1
            return
        pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in self._path)
        if len(pointer) > _MAX_POINTER:
            pointer = f"{pointer[:_MAX_POINTER]}..."
        self._changes.append(f"{kind} at {pointer or '/'}")
