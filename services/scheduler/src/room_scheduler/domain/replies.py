"""What a reply is on any channel, and its fate. Pure and total over any bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from room_common.domain.contacts import canonical
from room_common.errors import Refused

MAX_TEXT: Final = 16_000
"""Characters of a reply that are kept; what is beyond is cut with a marker."""
MAX_SENDER: Final = 200
_CUT: Final = " [cut]"

NO_TEXT: Final = "(a message without text)"
"""Stands for a picture, a voice message and the like: that somebody answered is not lost."""

IgnoredReason = Literal["no_room", "disabled", "wrong_contact", "not_allowed", "opted_out"]


@dataclass(frozen=True, slots=True)
class Post:
    """What ingest received. ``http``: kept request headers; ``uri``: the address it was posted to, with its query."""

    body: bytes = field(repr=False)
    content_type: str
    http: Mapping[str, str] = field(repr=False)
    uri: str = field(repr=False)
    received_at: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What a person answered. ``id`` is the provider's own id of it, None where it has none.

    ``contacts``: the conversations it can belong to, in canonical form. ``wish``: the person wants no more messages,
    or messages again.
    """

    sender: str
    text: str = field(repr=False)
    id: str | None
    contacts: tuple[str, ...]
    wish: Literal["stop", "start"] | None = None


def make_reply(
    sender: str,
    text: str,
    own_id: str | None,
    contacts: tuple[str, ...],
    wish: Literal["stop", "start"] | None = None,
) -> Reply:
    """A reply in a form that can be stored: no NUL, no lone surrogate, bounded."""
    clean = _storable(text.strip()) or NO_TEXT
    return Reply(
        sender=_storable(sender.strip())[:MAX_SENDER],
        text=clean if len(clean) <= MAX_TEXT else clean[: MAX_TEXT - len(_CUT)] + _CUT,
        id=_storable(own_id)[:MAX_SENDER] if own_id else None,
        contacts=contacts,
        wish=wish,
    )


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a post. Raises ``Refused`` with ``undecodable`` or ``not_an_object``."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused("undecodable") from None
    if not isinstance(data, dict):
        raise Refused("not_an_object")
    return data


def part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object inside an object; empty where there is none."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def text_of(data: Mapping[str, Any], name: str) -> str:
    """A text or a number as text; empty where there is none."""
    found = data.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str) else ""


def fate(
    reply: Reply,
    *,
    channel: str,
    channel_enabled: bool,
    room_exists: bool,
    room_enabled: bool,
    outbound_channel: str | None,
    outbound_target: str | None,
    allow: tuple[str, ...] = (),
    opted_out: bool = False,
) -> IgnoredReason | None:
    """None when the room takes the reply, else why it is ignored. ``allow``: senders that may answer; empty: all."""
    if not room_exists:
        return "no_room"
    if not room_enabled or not channel_enabled:
        return "disabled"
    if outbound_channel != channel or outbound_target is None:
        return "wrong_contact"
    if canonical(channel, outbound_target) not in reply.contacts:
        return "wrong_contact"
    if allow and canonical(channel, reply.sender) not in {canonical(channel, one) for one in allow}:
        return "not_allowed"
    return "opted_out" if opted_out else None


def _storable(text: str) -> str:
    """PostgreSQL refuses NUL and what is no Unicode text."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")
