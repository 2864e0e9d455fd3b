"""From a request target to what it addresses. Total over any bytes."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

RouteName = Literal["webhooks", "channels", "other"]

_WEBHOOKS: Final = b"/webhooks/"
_CHANNELS: Final = b"/channels/"

CHANNELS: Final = frozenset({"local", "slack", "telegram", "whatsapp"})
"""Channels whose replies are taken. Any other one does not exist."""


class Route(NamedTuple):
    """``token`` is one path segment as it was sent, never decoded: a token is plain hex. ``query`` is without ``?``."""

    name: RouteName
    token: bytes
    query: bytes
    channel: str = ""


def parse_target(target: bytes) -> Route | None:
    """The route of a request target, None when nothing is there. One slash at the end is ignored."""
    path, _, query = target.partition(b"?")
    if path.startswith(_WEBHOOKS):
        token = _segment(path[len(_WEBHOOKS) :])
        return None if token is None else Route("webhooks", token, query)
    if path.startswith(_CHANNELS):
        name, slash, rest = path[len(_CHANNELS) :].partition(b"/")
        token = _segment(rest)
        channel = name.decode("latin-1")
        if not slash or token is None or channel not in CHANNELS:
            return None
        return Route("channels", token, query, channel)
    if path[:7].lower() == b"http://" or path[:8].lower() == b"https://":
        _, _, after = target.partition(b"://")
        _, slash, rest = after.partition(b"/")
        return parse_target(b"/" + rest) if slash else None
    return None


def _segment(rest: bytes) -> bytes | None:
    if rest.endswith(b"/"):
        rest = rest[:-1]
    return rest if rest and b"/" not in rest else None
