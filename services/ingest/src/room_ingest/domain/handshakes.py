"""What providers ask before they send: each handshake is answered in place with an echo and makes no event.

A handshake is the whole request, so that a payload which merely mentions one stays an event. Every function is total
over any bytes. The echo is at most 1 KB.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

import orjson

MAX_BODY: Final = 2048
MAX_ECHO: Final = 1024
_SLACK: Final = re.compile(rb"url_verification")
"""``in`` takes up to twenty times as long, depending on the letters of the body."""
_GRAPH: Final = b"validationToken"
_SLACK_KEYS: Final = ({"type", "challenge", "token"}, {"type", "challenge"})


class WrongVerifyToken(Exception):
    """The handshake's own secret is not the token of the URL."""


def slack_challenge(body: bytes) -> bytes | None:
    """The challenge of a Slack ``url_verification``: an object of type, challenge and (older apps: no) token."""
    if len(body) > MAX_BODY or _SLACK.search(body) is None:
        return None
    try:
        value = orjson.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.keys() not in _SLACK_KEYS or value["type"] != "url_verification":
        return None
    return _echo(value["challenge"])


def graph_validation(query: bytes, body: bytes) -> bytes | None:
    """The decoded ``validationToken`` of Microsoft Graph, which posts it with an empty body."""
    if body or _GRAPH not in query:
        return None
    return _echo_bytes(_parameters(query).get(_GRAPH))


def hub_challenge(query: bytes, token: bytes) -> bytes | None:
    """The ``hub.challenge`` of Meta and WebSub, None without one.

    Meta sends a verify token: it has to be the URL's own. WebSub has no such parameter and names its topic instead;
    there the URL alone is the secret. Raises :class:`WrongVerifyToken` for anything else.
    """
    parameters = _parameters(query)
    challenge = _echo_bytes(parameters.get(b"hub.challenge"))
    if challenge is None:
        return None
    given = parameters.get(b"hub.verify_token")
    if given == token or (given is None and parameters.get(b"hub.topic")):
        return challenge
    raise WrongVerifyToken


def _parameters(query: bytes) -> dict[bytes, bytes]:
    """The first value of each parameter, decoded as a form does."""
    found: dict[bytes, bytes] = {}
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        found.setdefault(unquote_to_bytes(name.replace(b"+", b" ")), unquote_to_bytes(value.replace(b"+", b" ")))
    return found


def _echo(value: object) -> bytes | None:
    return _echo_bytes(value.encode()) if isinstance(value, str) else None


def _echo_bytes(value: bytes | None) -> bytes | None:
    return value if value and len(value) <= MAX_ECHO else None
