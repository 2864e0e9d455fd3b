"""The envelope of a webhook or reply record: the body is the value, byte for byte; all else is in record headers.

Header names are the contract (design, topics). ``http`` holds an allow-list of request headers, names in lower case,
secret ones only as SHA-256 in the form ``sha256:<hex>``, Authorization with its scheme: ``bearer sha256:<hex>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal
from uuid import UUID

import orjson

from room_common.errors import DeadLetter
from room_common.kafka.records import Headers, Record

Outcome = Literal["ok", "too_large"]

ID: Final = "id"
TOKEN_SHA256: Final = "token_sha256"  # noqa: S105 - a header's name
RECEIVED_AT: Final = "received_at"
CONTENT_TYPE: Final = "content_type"
HTTP: Final = "http"
QUERY: Final = "query"
OUTCOME: Final = "outcome"
TRACEPARENT: Final = "traceparent"
REPLAY_OF: Final = "replay_of"
FORCED: Final = "forced"
ITEM: Final = "item"
CHANNEL: Final = "channel"

ERROR: Final = "error"
ATTEMPTS: Final = "attempts"
ORIGIN: Final = "origin"

KEPT_HEADERS: Final = frozenset(
    {
        "content-encoding",
        "content-type",
        "user-agent",
        "idempotency-key",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "stripe-signature",
        "svix-id",
        "svix-signature",
        "svix-timestamp",
        "x-event-key",
        "x-event-type",
        "x-github-delivery",
        "x-github-event",
        "x-github-hook-id",
        "x-hub-signature",
        "x-hub-signature-256",
        "x-hubspot-request-timestamp",
        "x-hubspot-signature",
        "x-hubspot-signature-v3",
        "x-hubspot-signature-version",
        "x-gitlab-event",
        "x-gitlab-event-uuid",
        "x-gitlab-webhook-uuid",
        "x-request-id",
        "x-shopify-event-id",
        "x-shopify-hmac-sha256",
        "x-shopify-shop-domain",
        "x-shopify-topic",
        "x-shopify-triggered-at",
        "x-shopify-webhook-id",
        "x-signature",
        "x-slack-request-timestamp",
        "x-slack-retry-num",
        "x-slack-retry-reason",
        "x-slack-signature",
        "x-amz-sns-message-id",
        "x-amz-sns-message-type",
        "x-amz-sns-topic-arn",
        "x-gitea-delivery",
        "x-gitea-event",
        "x-twilio-signature",
        "x-webhook-signature",
        "sentry-hook-resource",
        "ce-id",
        "ce-type",
    }
)
"""Request headers that travel with a record as they were sent, besides those :func:`carries_signature` names."""

HASHED_HEADERS: Final = frozenset({"authorization", "x-gitlab-token", "x-api-key", "x-telegram-bot-api-secret-token"})
"""Request headers whose value is a secret, besides those :func:`carries_secret` names: only its SHA-256 travels."""

_SECRET_ENDINGS: Final = ("-token", "-key", "-secret", "apikey")

MAX_HEADER_VALUE: Final = 2048
"""Bytes of one kept header's value; a longer one is cut, which makes a signature in it invalid and nothing else."""


def carries_secret(name: str) -> bool:
    """Whether a header, named in lower case, is taken for a secret: a source may be verified by it."""
    return name in HASHED_HEADERS or (name not in KEPT_HEADERS and name.endswith(_SECRET_ENDINGS))


def carries_signature(name: str) -> bool:
    """Whether a header, named in lower case, is taken for a signature of the body: any provider may name its own."""
    return ("signature" in name or "hmac" in name) and not carries_secret(name)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What ingest knew of a request. ``received_at_us``: microseconds since the epoch, the receiving host's clock.

    ``replay_of`` and ``forced`` are set by admin only: the delivery that this is one more copy of, and whether it may
    be let in although its signature is wrong. ``item`` names the one item of it that is meant.
    """

    id: UUID
    token_sha256: bytes
    received_at_us: int
    content_type: str | None = None
    http: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    outcome: Outcome = "ok"
    traceparent: str | None = None
    replay_of: UUID | None = None
    forced: bool = False
    item: int | None = None
    channel: str | None = None


def encode(envelope: Envelope) -> Headers:
    """The record headers of an envelope."""
    headers = [
        (ID, str(envelope.id).encode()),
        (TOKEN_SHA256, envelope.token_sha256.hex().encode()),
        (RECEIVED_AT, b"%d" % envelope.received_at_us),
        (HTTP, orjson.dumps(dict(envelope.http))),
        (OUTCOME, envelope.outcome.encode()),
    ]
    if envelope.content_type is not None:
        headers.append((CONTENT_TYPE, envelope.content_type.encode()))
    if envelope.query:
        headers.append((QUERY, envelope.query.encode()))
    if envelope.traceparent is not None:
        headers.append((TRACEPARENT, envelope.traceparent.encode()))
    if envelope.replay_of is not None:
        headers.append((REPLAY_OF, str(envelope.replay_of).encode()))
    if envelope.forced:
        headers.append((FORCED, b"1"))
    if envelope.item is not None:
        headers.append((ITEM, b"%d" % envelope.item))
    if envelope.channel is not None:
        headers.append((CHANNEL, envelope.channel.encode()))
    return tuple(headers)


def decode(record: Record) -> Envelope:
    """The envelope of a record. Total over any headers: raises only ``DeadLetter('bad_envelope')``."""
    found = _last(record.headers)
    try:
        digest = bytes.fromhex(found[TOKEN_SHA256].decode("ascii"))
        outcome = found[OUTCOME].decode("ascii")
        http = orjson.loads(found.get(HTTP, b"{}"))
        replay_of, item = found.get(REPLAY_OF), found.get(ITEM)
        received_at_us = int(found[RECEIVED_AT].decode("ascii"))
        valid = len(digest) == 32 and isinstance(http, dict) and 0 <= received_at_us < 1 << 53
        if not valid:
            raise DeadLetter("bad_envelope")
        return Envelope(
            id=UUID(found[ID].decode("ascii")),
            token_sha256=digest,
            received_at_us=received_at_us,
            content_type=_text(found.get(CONTENT_TYPE)),
            http={str(name): str(value) for name, value in http.items()},
            query=_text(found.get(QUERY)) or "",
            outcome="too_large" if outcome == "too_large" else "ok",
            traceparent=_text(found.get(TRACEPARENT)),
            replay_of=UUID(replay_of.decode("ascii")) if replay_of else None,
            forced=replay_of is not None and found.get(FORCED) == b"1",
            item=int(item.decode("ascii")) if item else None,
            channel=_text(found.get(CHANNEL)),
        )
    except (KeyError, ValueError):
        raise DeadLetter("bad_envelope") from None


def id_by_place(record: Record) -> UUID:
    """The id of a record whose envelope can't be read: its place in the topic gives it one."""
    place = f"{record.topic}/{record.partition}/{record.offset}".encode()
    return UUID(bytes=sha256(place).digest()[:16], version=5)


def dead_headers(record: Record, error: DeadLetter, attempts: int) -> Headers:
    """The headers of a dead-lettered record: its own, plus the error's kind and status, the attempts and its origin."""
    own = [(name, value) for name, value in record.headers if name not in {ERROR, ATTEMPTS, ORIGIN}]
    status = "" if error.status is None else f":{error.status}"
    return (
        *own,
        (ERROR, f"{error.kind}{status}".encode()),
        (ATTEMPTS, b"%d" % attempts),
        (ORIGIN, f"{record.topic}/{record.partition}/{record.offset}".encode()),
    )


def _last(headers: Headers) -> dict[str, bytes]:
    return dict(headers)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
