"""What a ``Content-Type`` says about how to read a body."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_CHARSET = re.compile(r"[;,]\s*charset\s*=\s*[\"']?([^\s\"';,]{1,40})", re.IGNORECASE)
_JSON = frozenset({"application/json", "text/json", "application/x-json", "text/x-json"})
_XML = frozenset({"application/xml", "text/xml"})
_SAYS_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream", "*/*"})


class Kind(Enum):
    """How a body is read."""

    JSON = auto()
    FORM = auto()
    TEXT = auto()
    XML = auto()
    UNDECLARED = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class MediaType:
    """The kind of a body and its declared charset."""

    kind: Kind
    charset: str | None


def media_type(content_type: str | None) -> MediaType:
    """Read a ``Content-Type``, however spelled; parameters other than the charset are of no interest."""
    header = (content_type or "")[:1024]
    name = re.split("[;,]", header, maxsplit=1)[0].strip().lower()
    charset = _CHARSET.search(header)
    return MediaType(_kind(name), charset[1] if charset else None)


def _kind(name: str) -> Kind:
    if name in _JSON or name.endswith("+json"):
        return Kind.JSON
    if name == "application/x-www-form-urlencoded":
        return Kind.FORM
    if name in _XML or name.endswith("+xml"):
        return Kind.XML
    if name.startswith("text/"):
        return Kind.TEXT
    return Kind.UNDECLARED if name in _SAYS_NOTHING else Kind.OTHER
