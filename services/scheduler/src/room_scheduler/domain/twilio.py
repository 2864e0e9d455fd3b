"""Replies of WhatsApp users through Twilio: a form, signed over the address and its fields.

https://www.twilio.com/docs/usage/webhooks/webhooks-security
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qs, parse_qsl, urlsplit

from room_common.contracts.channel_config import ChannelConfig, WhatsAppConfig
from room_common.domain.contacts import canonical
from room_common.errors import Defect, Refused
from room_scheduler.domain.replies import Post, Reply, make_reply, read_object, text_of

SIGNATURE_HEADER: Final = "x-twilio-signature"
BODY_HASH: Final = "bodySHA256"

STOP_WORDS: Final = frozenset({"stop", "stopall", "unsubscribe", "cancel", "end", "quit"})
START_WORDS: Final = frozenset({"start", "unstop"})
"""Twilio's own words, but not YES, which people answer to other questions."""

Fields = Mapping[str, Sequence[str]]


def read_whatsapp(post: Post, config: ChannelConfig) -> Reply | None:
    """The reply, or None for a report on a message of ours.

    Raises ``Refused`` with ``bad_signature``, ``undecodable`` or ``not_an_object``.
    """
    if not isinstance(config, WhatsAppConfig):
        raise Defect("not a WhatsApp channel")
    fields, hashed = _fields(post)
    if not _signed(post, config.auth_token.encode(), {} if hashed else fields):
        raise Refused("bad_signature")
    if hashed:
        data = read_object(post.body)
        fields = {name: [text_of(data, name)] for name in data}
    sender, text = _first(fields, "From"), _first(fields, "Body")
    message_id = _first(fields, "MessageSid") or _first(fields, "SmsMessageSid")
    if not sender or not message_id or ("Body" not in fields and "NumMedia" not in fields):
        return None
    contact = canonical("whatsapp", sender)
    return make_reply(contact, text, message_id, (contact,), _wish(text))


def _fields(post: Post) -> tuple[Fields, bool]:
    """The form, and whether the body is signed by its hash instead. Such a body is JSON."""
    if BODY_HASH in parse_qs(urlsplit(post.uri).query):
        return {}, True
    fields: dict[str, list[str]] = {}
    try:
        for name, value in parse_qsl(post.body.decode("utf-8"), keep_blank_values=True, errors="strict"):
            fields.setdefault(name, []).append(value)
    except ValueError:
        raise Refused("undecodable") from None
    return fields, False


def _signed(post: Post, secret: bytes, fields: Fields) -> bool:
    given = post.http.get(SIGNATURE_HEADER, "").encode("utf-8", "replace")
    parts = urlsplit(post.uri)
    stated = parse_qs(parts.query).get(BODY_HASH)
    if stated is not None:
        actual = hashlib.sha256(post.body).hexdigest()
        if not hmac.compare_digest(actual.encode(), stated[0].lower().encode("utf-8", "replace")):
            return False
    found = False
    for uri in _spellings(parts, post.uri):
        found |= hmac.compare_digest(signature(secret, uri, fields).encode(), given)
    return found


def signature(secret: bytes, uri: str, fields: Fields) -> str:
    """Twilio's signature: HMAC-SHA1 of the address and then every field, by name and by value, each value once."""
    text = uri + "".join(f"{name}{value}" for name in sorted(fields) for value in sorted(set(fields[name])))
    return base64.b64encode(hmac.new(secret, text.encode("utf-8", "replace"), hashlib.sha1).digest()).decode("ascii")


def _spellings(parts: SplitResult, uri: str) -> Iterator[str]:
    """The address as it is, and with and without its port: Twilio's products differ."""
    yield uri
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    try:
        port = parts.port or default
    except ValueError:
        return
    yield parts._replace(netloc=f"{host}:{port}").geturl()
    yield parts._replace(netloc=host).geturl()


def _first(fields: Fields, name: str) -> str:
    values = fields.get(name)
    return values[0] if values else ""


def _wish(text: str) -> Literal["stop", "start"] | None:
    word = text.strip().casefold()
    if word in STOP_WORDS:
        return "stop"
    return "start" if word in START_WORDS else None
