"""Reading a reply, and deciding its fate. Pure and total over any bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import orjson

from room_common.errors import Refused

MAX_TEXT: Final = 16_000
"""Characters of a reply that are kept; what is beyond is cut with a marker."""
MAX_SENDER: Final = 200
_CUT: Final = " [cut]"

IgnoredReason = Literal["no_room", "disabled", "wrong_contact"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a person answered. ``id`` is the sender's own id of the message, None where it has none."""

    sender: str
    text: str
    id: str | None


def read_local(body: bytes) -> Reply:
    """A reply of the local channel: ``{"sender": ..., "text": ..., "id": optional}``.

    Raises ``Refused`` with the reason ``undecodable``, ``not_an_object``, ``no_sender`` or ``no_text``.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused("undecodable") from None
    if not isinstance(data, dict):
        raise Refused("not_an_object")
    sender, text, own_id = data.get("sender"), data.get("text"), data.get("id")
    if not isinstance(sender, str) or not canonical(sender):
        raise Refused("no_sender")
    if not isinstance(text, str) or not text.strip():
        raise Refused("no_text")
    clean = _storable(text.strip())
    return Reply(
        sender=_storable(sender.strip())[:MAX_SENDER],
        text=clean if len(clean) <= MAX_TEXT else clean[: MAX_TEXT - len(_CUT)] + _CUT,
        id=_storable(own_id)[:MAX_SENDER] if isinstance(own_id, str) and own_id else None,
    )


def canonical(contact: str) -> str:
    """A contact of the local channel as it is compared: trimmed, case ignored."""
    return contact.strip().casefold()


def fate(
    reply: Reply,
    *,
    channel: str,
    channel_enabled: bool,
    room_exists: bool,
    room_enabled: bool,
    outbound_channel: str | None,
    outbound_target: str | None,
) -> IgnoredReason | None:
    """None when the room takes the reply, else why it is ignored."""
    if not room_exists:
        return "no_room"
    if not room_enabled or not channel_enabled:
        return "disabled"
    if outbound_channel != channel or outbound_target is None or canonical(outbound_target) != canonical(reply.sender):
        return "wrong_contact"
    return None


def _storable(text: str) -> str:
    """PostgreSQL refuses NUL in text; lone surrogates never get past the parser."""
    return text.replace("\x00", "�")
