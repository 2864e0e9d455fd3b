"""The checks of the cascade that need nothing but what is known already, cheapest first (behaviour, section 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from room_common.contracts.source_config import Verify
from room_common.domain.decoding import Decoded, Item, decode_payload
from room_common.domain.deliveries import Outcome, Source
from room_matcher.domain.signatures import Signed, Verification, verify

AHEAD_LIMIT: Final = timedelta(minutes=5)
"""A receipt further ahead of the broker's clock than this is a wrong clock, and the broker's is taken."""

SAME_MOMENT: Final = timedelta(seconds=1)
"""Ingest's and the broker's clock differ by less where both are right, and so do receipt and append."""

RECHECKED: Final[frozenset[Outcome]] = frozenset(
    {"unknown_token", "source_disabled", "config_unreadable", "bad_signature", "room_disabled", "no_definitions"}
)
"""Stops that an outdated copy of the configuration may cause: it is read again before they count."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_LANE_HEADERS: Final = ("x-github-delivery", "webhook-id")


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the cascade ends without a question to the model. ``reason`` is a bounded name for the ledger."""

    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A delivery as it was received. Header names are lower-case; ``received_at_s`` is Unix time in seconds.

    ``replayed``: an operator sent it again, so that its signature may be of any age. ``forced``: and whoever sent it
    first need not have proved who they are.
    """

    body: bytes = field(repr=False)
    content_type: str | None
    headers: Mapping[str, str] = field(repr=False)
    query: str = field(repr=False)
    received_at_s: float
    too_large: bool
    replayed: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A delivery that was let in: its items, and whether its sender proved who it is (the trust label)."""

    items: tuple[Item, ...]
    verified: bool


def moment(received_at_us: int) -> datetime:
    """Microseconds since the epoch as a time in UTC."""
    return _EPOCH + timedelta(microseconds=received_at_us)


def microseconds(at: datetime) -> int:
    """The reverse of :func:`moment`."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def ledger_time(received_at_us: int, appended_at_ms: int) -> datetime:
    """The receipt as the ledger keys it: the record's own, or the broker's time if that one is too far ahead.

    ``appended_at_ms`` below 1 means that the broker gave none. Equal records give equal keys; what else may be in the
    ledger under another one, :func:`may_have_other_time` says.
    """
    received = moment(received_at_us)
    if appended_at_ms < 1:
        return received
    appended = _EPOCH + timedelta(milliseconds=appended_at_ms)
    return appended if received - appended > AHEAD_LIMIT else received


def may_have_other_time(received_at_us: int, appended_at_ms: int) -> bool:
    """Whether a copy of this delivery, appended at another time, may have another :func:`ledger_time`.

    Only a receipt from a clock that is ahead is replaced, and then by the time of that copy's own append. A copy that
    came early is ahead of the broker itself; one that came late enough not to be ahead came through the overflow, and
    so later than Kafka's acknowledgements do.
    """
    if appended_at_ms < 1:
        return False
    late = _EPOCH + timedelta(milliseconds=appended_at_ms) - moment(received_at_us)
    return not -SAME_MOMENT <= late <= SAME_MOMENT


def trace_id(traceparent: str | None) -> str | None:
    """The trace id of a W3C ``traceparent``, None for anything else."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return None if found is None else found[1]


def check_source(source: Source | None, received_at: datetime, *, replayed: bool = False) -> Stop | None:
    """Token known at the time of receipt, source enabled. A replay's token may have expired since its first receipt."""
    if source is None:
        return Stop("unknown_token")
    if not replayed and source.valid_until is not None and received_at > source.valid_until:
        return Stop("unknown_token", "expired")
    if source.deleted:
        return Stop("source_disabled", "deleted")
    return None if source.enabled else Stop("source_disabled")


def check_room(source: Source) -> Stop | None:
    """Room there and enabled; a paused instance behaves as one whose room is disabled."""
    if source.instance_deleted:
        return Stop("room_disabled", "instance_deleted")
    if not source.instance_active:
        return Stop("room_disabled", "paused")
    if source.room_enabled is None:
        return Stop("room_disabled", "no_room")
    return None if source.room_enabled else Stop("room_disabled")


def judge(
    request: Request,
    source_type: str,
    secrets: tuple[str, ...],
    *,
    split: bool,
    uri: str,
    check: Verify | None = None,
) -> Accepted | Stop:
    """Size, signature, decoding. ``uri`` is the public address the sender posted to, its query included.

    ``check`` is how a generic source is verified. A source with neither that nor secrets accepts anything, as
    unverified; no other source does.
    """
    if request.too_large:
        return Stop("too_large", "body")
    verification = _verification(request, source_type, secrets, uri, check)
    verified = verification is not None and verification.verified
    if verification is not None and not verified and not request.forced:
        return Stop("bad_signature", str(verification.problem))
    decoded = decode_payload(request.body, request.content_type, request.headers, split=split)
    if not isinstance(decoded, Decoded):
        return Stop("too_large" if decoded.too_large else "undecodable", str(decoded.reason))
    return Accepted(decoded.items, verified)


def _verification(
    request: Request, source_type: str, secrets: tuple[str, ...], uri: str, check: Verify | None
) -> Verification | None:
    if not secrets and check is None:
        return None
    signed = Signed("POST", uri, request.headers, request.body, request.received_at_s)
    keys = [secret.encode() for secret in secrets]
    return verify(source_type, keys, signed, check=check, check_age=not request.replayed)


def surely_one_item(body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether these bytes are one item under any configuration. False where only decoding would tell.

    Several items are an array, and every charset that is read writes its bracket with the byte of ASCII. A form may
    escape it, with a percent sign that UTF-16 and UTF-32 write beside a zero.
    """
    if "content-encoding" in headers:
        return False
    if not body or body.lstrip()[:1] == b"{":
        return True
    return b"[" not in body and b"%" not in body and b"\0" not in body


def lane_key(token_sha256: bytes, headers: Mapping[str, str], body: bytes) -> bytes:
    """Equal for copies of one delivery, as far as they can be told without configuration: by id header or body."""
    for name in _LANE_HEADERS:
        if value := headers.get(name):
            return sha256(token_sha256 + name.encode() + value.encode("utf-8", "surrogatepass")).digest()
    return sha256(token_sha256 + body).digest()
