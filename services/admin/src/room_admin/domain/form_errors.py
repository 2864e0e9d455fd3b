"""What a form says when it was not taken, and what it fills in by itself. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIORITY_STEP: Final = 10
_MAX_PRIORITY: Final = 1_000_000
_MAX_SLUG: Final = 63
_PLAIN: Final = {
    "string_too_short": "Write something here.",
    "missing": "Write something here.",
    "int_parsing": "Write a whole number.",
    "int_from_float": "Write a whole number.",
    "double_name": "There is one of this name already.",
    "string_pattern_mismatch": "It has not the form that is expected here.",
}


@dataclass(frozen=True, slots=True)
class Wrong:
    """Why a form was not taken: by field, and what belongs to none."""

    fields: Mapping[str, str] = field(default_factory=dict)
    general: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The HTTP status of the form drawn with it."""
        return 422 if self.fields or self.general else 200


def slug_of(name: str) -> str:
    """A slug that a room of this name could have; empty where nothing of the name can be in one."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_MAX_SLUG].strip("-")


def last_priority(definitions: Iterable[Mapping[str, Any]]) -> int:
    """The priority of a definition that is asked after all the others."""
    highest = max((int(one["priority"]) for one in definitions), default=0)
    return min(highest + PRIORITY_STEP, _MAX_PRIORITY)


def wrong_document(errors: Iterable[Mapping[str, Any]], known: Iterable[str]) -> Wrong:
    """What pydantic found, by the names of a form's fields: the innermost of a place that the form has."""
    fields: dict[str, str] = {}
    general: list[str] = []
    names = frozenset(known)
    for error in errors:
        place = next((str(part) for part in reversed(error["loc"]) if str(part) in names), None)
        kind = str(error["type"])
        if kind == "double_name":
            place = "name"
        text = _PLAIN.get(kind) or _sentence(str(error["msg"]).removeprefix("Value error, "))
        if place in names and place is not None:
            fields.setdefault(place, text)
        else:
            general.append(text)
    return Wrong(fields, tuple(dict.fromkeys(general)))


def wrong_pointers(detail: str, errors: Iterable[tuple[str, str]], known: Iterable[str]) -> Wrong:
    """What the API found, whose places are JSON pointers."""
    names = frozenset(known)
    fields: dict[str, str] = {}
    general: list[str] = []
    for pointer, text in errors:
        parts = pointer.split("/")
        place = next((part for part in reversed(parts) if part in names), None)
        if place is None and "secrets" in parts and "secret" in names:
            place = "secret"
        if place is None:
            general.append(_sentence(text))
        else:
            fields.setdefault(place, _sentence(text))
    if not fields and not general:
        general.append(_sentence(detail))
    return Wrong(fields, tuple(dict.fromkeys(general)))


def _sentence(text: str) -> str:
    """As a sentence of its own."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
