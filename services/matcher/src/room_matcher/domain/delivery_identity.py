"""Which delivery an item is: by which key a second copy of it is recognised, and whether that copy is the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from room_common.domain.decoding import Item
from room_common.domain.jsonview import Json, json_text

ID_TTL_S = 24 * 60 * 60
BODY_TTL_S = 10 * 60

# Where a sender's own id is, by source type: in the item ...
_ID_FIELDS = {"stripe": "id", "hubspot": "eventId", "slack": "event_id"}
# ... or in a header. All are tried for every type: Gitea sends GitHub's, many send the standard one. GitLab's
# X-Gitlab-Webhook-UUID is none of them: it names the hook and not the delivery.
_ID_HEADERS = (
    "x-github-delivery",
    "webhook-id",
    "svix-id",
    "x-shopify-webhook-id",
    "x-gitlab-event-uuid",
    "x-amz-sns-message-id",
    "idempotency-key",
)
_HEADERS_OF_TYPE = {
    "github": ("x-github-delivery",),
    "gitlab": ("idempotency-key", "webhook-id", "x-gitlab-event-uuid"),
    "shopify": ("x-shopify-webhook-id",),
    "standard": ("webhook-id", "svix-id"),
}
# What a sender changes when it sends the same event again.
_CHANGED_BY_RETRY = {"stripe": "pending_webhooks", "hubspot": "attemptNumber"}

_PLAIN_ID = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)

_SNS_CONFIRMATIONS = frozenset({"SubscriptionConfirmation", "UnsubscribeConfirmation"})
_SNS_FIELDS = ("TopicArn", "SubscribeURL", "Token")


@dataclass(frozen=True, slots=True)
class Identity:
    """``key`` is unique per source for ``ttl_seconds``; the same key with another ``content_sha256`` is a conflict."""

    key: str
    content_sha256: bytes
    ttl_seconds: int


def identify(
    source_type: str, headers: Mapping[str, str], item: Item, *, body_ttl_seconds: int = BODY_TTL_S
) -> Identity:
    """The identity of an item: by its sender's id for 24 h, else by its content for ``body_ttl_seconds``.

    An element of a batch has only its own id: the request's headers name the whole batch.
    """
    kind = source_type.strip().lower()
    content = _content_sha256(kind, item)
    sender_id = _id_in_view(kind, item.view) or (None if item.sliced else _id_in_headers(kind, headers))
    if sender_id is None:
        return Identity(f"sha256:{content.hex()}", content, body_ttl_seconds)
    return Identity(sender_id, content, ID_TTL_S)


def is_handshake_confirmation(view: Json) -> bool:
    """Whether this is a confirmation of Amazon SNS, which is recorded and never fetched.

    https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
    """
    if not isinstance(view, dict) or not isinstance(kind := view.get("Type"), str):
        return False
    return kind in _SNS_CONFIRMATIONS and any(isinstance(view.get(name), str) for name in _SNS_FIELDS)


def _content_sha256(kind: str, item: Item) -> bytes:
    changing = _CHANGED_BY_RETRY.get(kind)
    if changing is None or not isinstance(item.view, dict):
        return hashlib.sha256(item.raw).digest()
    lasting = {name: value for name, value in item.view.items() if name != changing}
    return hashlib.sha256(json_text(lasting, sort_keys=True).encode()).digest()


def _id_in_view(kind: str, view: Json) -> str | None:
    name = _ID_FIELDS.get(kind)
    if name is None or not isinstance(view, dict):
        return None
    value = view.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return _key(kind, str(value))


def _id_in_headers(kind: str, headers: Mapping[str, str]) -> str | None:
    own = _HEADERS_OF_TYPE.get(kind, ())
    for name in (*own, *(name for name in _ID_HEADERS if name not in own)):
        if value := headers.get(name, "").strip():
            return _key(name, value)
    return None


def _key(namespace: str, value: str) -> str | None:
    """A key that an index takes: short printable ids as they are, others by their hash."""
    if not value:
        return None
    if _PLAIN_ID.fullmatch(value):
        return f"{namespace}:{value}"
    return f"{namespace}:sha256:{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()}"
