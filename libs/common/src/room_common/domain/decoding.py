"""From a request's bytes to what a model and PostgreSQL may see: one total function, wherever a payload is read.

It never raises, whatever the bytes; its time and memory are bounded by the limits below. A payload that can't be read
ends with a named reason, one that had to be changed to be shown carries the list of changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from room_common.domain.charsets import decode_text
from room_common.domain.inflation import inflate
from room_common.domain.json_parser import MAX_KEYS, Parsed, parse_json, view_of_fields
from room_common.domain.json_slices import array_elements
from room_common.domain.jsonview import Json
from room_common.domain.media_types import Kind, media_type
from room_common.domain.reasons import Reason

__all__ = ["MAX_BYTES", "MAX_ITEMS", "Decoded", "Item", "Reason", "Undecodable", "decode_payload"]

MAX_BYTES = 65_536
MAX_ITEMS = 100


@dataclass(frozen=True, slots=True)
class Item:
    """One event of a delivery.

    ``raw`` is the received body, or the element's bytes if the delivery was split (``sliced``). ``content_type`` and
    ``content_encoding`` are those under which ``raw`` decodes to the same view again: store them with it. ``problem``
    is set, and ``view`` None, for an element of a batch that is no event by itself (a bare number, say); its neighbours
    are not affected.
    """

    index: int
    view: Json = field(repr=False)
    raw: bytes = field(repr=False)
    changes: tuple[str, ...]
    content_type: str | None
    content_encoding: str | None
    sliced: bool = False
    problem: Reason | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A delivery that could be read: one item, or one per element where it was split."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A delivery that can't be read, and why."""

    reason: Reason

    @property
    def too_large(self) -> bool:
        """Whether the outcome is ``too_large`` instead of ``undecodable``."""
        return self.reason is Reason.TOO_LARGE


@dataclass(frozen=True, slots=True)
class _Document:
    """A parsed payload; ``utf8`` is its JSON text, None if it is not JSON and so has no elements."""

    parsed: Parsed = field(repr=False)
    utf8: bytes | None = field(repr=False)


def decode_payload(
    body: bytes, content_type: str | None, headers: Mapping[str, str], *, split: bool
) -> Decoded | Undecodable:
    """Decode a request body. ``headers`` have lower-case names; of them only ``content-encoding`` matters, and
    ``content-type`` where ``content_type`` is None. ``split`` makes each element of a top-level array an item."""
    if content_type is None:
        content_type = headers.get("content-type")
    content_encoding = headers.get("content-encoding")
    document = _read(body, content_type, content_encoding)
    if isinstance(document, Reason):
        return Undecodable(document)
    view = document.parsed.view
    if not isinstance(view, (dict, list)):
        return Undecodable(Reason.NOT_AN_OBJECT)
    if split and isinstance(view, list) and document.utf8 is not None:
        return _split(document.utf8, len(view))
    return Decoded((Item(0, view, body, document.parsed.changes, content_type, content_encoding),))


def _split(utf8: bytes, count: int) -> Decoded | Undecodable:
    if count == 0:
        return Undecodable(Reason.EMPTY)
    if count > MAX_ITEMS:
        return Undecodable(Reason.TOO_MANY_ITEMS)
    return Decoded(tuple(_element(index, raw) for index, raw in enumerate(array_elements(utf8))))


def _element(index: int, raw: bytes) -> Item:
    parsed = parse_json(raw.decode(), raw)
    problem = parsed if isinstance(parsed, Reason) else None
    view = None if isinstance(parsed, Reason) else parsed.view
    changes = () if isinstance(parsed, Reason) else parsed.changes
    if problem is None and not isinstance(view, (dict, list)):
        view, changes, problem = None, (), Reason.NOT_AN_OBJECT
    return Item(index, view, raw, changes, "application/json", None, sliced=True, problem=problem)


def _read(body: bytes, content_type: str | None, content_encoding: str | None) -> _Document | Reason:
    if not body:
        return Reason.EMPTY
    if len(body) > MAX_BYTES:
        return Reason.TOO_LARGE
    inflated = inflate(body, content_encoding, MAX_BYTES)
    if isinstance(inflated, Reason):
        return inflated
    media = media_type(content_type)
    json_like = media.kind in (Kind.JSON, Kind.UNDECLARED, Kind.OTHER)
    decoded = decode_text(inflated, media.charset, json_like=json_like, xml=media.kind is Kind.XML)
    if isinstance(decoded, Reason):
        return decoded
    if not decoded.text.strip():
        return Reason.EMPTY
    if media.kind is Kind.FORM:
        return _read_form(decoded.text, decoded.codec)
    if media.kind is Kind.XML:
        return _plain(decoded.text)
    document = _json(decoded.text)
    if not isinstance(document, Reason):
        return document
    if media.kind is Kind.TEXT and (document is Reason.INVALID_JSON or not _looks_like_json(decoded.text)):
        return _plain(decoded.text)
    if media.kind is Kind.OTHER and not _looks_like_json(decoded.text):
        return Reason.UNSUPPORTED_MEDIA_TYPE
    return document


def _json(text: str) -> _Document | Reason:
    utf8 = text.encode()
    parsed = parse_json(text, utf8)
    return parsed if isinstance(parsed, Reason) else _Document(parsed, utf8)


def _plain(text: str) -> _Document:
    return _Document(view_of_fields([("text", text)]), None)


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _read_form(text: str, codec: str) -> _Document | Reason:
    """A form: the JSON in its ``payload`` field, else its fields as an object; repeated fields as an array.

    JSON sent under this content type, as command-line clients do by default, is read as JSON: no encoder of forms
    leaves a bracket unescaped.
    """
    if _looks_like_json(text):
        return _json(text)
    if "=" not in text and not isinstance(bare := _json(text), Reason):
        return bare
    try:
        pairs = parse_qsl(text, keep_blank_values=True, encoding=codec, errors="strict", max_num_fields=MAX_KEYS)
    except UnicodeDecodeError:
        return Reason.INVALID_ENCODING
    except ValueError:
        return Reason.TOO_MANY_KEYS
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    payload = fields.get("payload", [])
    if len(payload) == 1 and _looks_like_json(payload[0]):
        return _json(payload[0])
    named = [(name, values[0] if len(values) == 1 else values) for name, values in fields.items()]
    return _Document(view_of_fields(named), None) if named else Reason.EMPTY
