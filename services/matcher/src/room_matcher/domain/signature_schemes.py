"""What each scheme claims in a request's headers: one total reader per scheme, none of which raises.

A claim says which signatures were sent, how a secret would sign the same request, and when it was signed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify
from room_common.domain import signing
from room_common.domain.credentials import hashed_credential

_GITHUB = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_SLACK = re.compile(r"v0=([0-9a-f]{64})", re.ASCII)
_STRIPE_PART = re.compile(r"\s*([a-z0-9_]{1,20})=([^\s,]{1,200})\s*", re.ASCII)
_MAX_PARTS = 64
_HEX_MAC = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BASE64_MAC = re.compile(r"[A-Za-z0-9+/]{43}=", re.ASCII)
_STANDARD_PART = re.compile(r"v1,([A-Za-z0-9+/]{43}=),?", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)
_HASHED = re.compile(r"([a-z]{1,10} )?sha256:[0-9a-f]{64}", re.ASCII)
_SECONDS = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)
_MILLISECONDS = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)


class Problem(StrEnum):
    """Why a request is not verified. All of them have the outcome ``bad_signature``; this is the recorded detail."""

    MISSING = "missing"
    MALFORMED = "malformed"
    MISMATCH = "mismatch"
    STALE = "stale"
    UNSECURED = "no_secret_configured"
    UNKNOWN_SCHEME = "unknown_scheme"


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as its sender signed it.

    ``public_uri`` is the whole address the sender posted to, query included; ``headers`` have lower-case names;
    ``received_at_s`` is Unix time in seconds.
    """

    method: str
    public_uri: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    received_at_s: float


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request claims: its signatures, how one secret would sign it, and when it says it was signed."""

    signatures: Sequence[bytes] = field(repr=False)
    macs: Callable[[bytes], Iterable[bytes]]
    signed_at_s: float | None = None


Reader = Callable[[Signed], "Claim | Problem"]


def reader_of(scheme: str, check: Verify | None) -> Reader | None:
    """The reader for a source type; ``check`` is what a generic source says of itself."""
    kind = scheme.strip().lower()
    if kind != "generic" or check is None:
        return SCHEMES.get(kind)
    if check.hmac is not None:
        return partial(_hmac, check.hmac)
    return None if check.auth_key is None else partial(_auth_key, check.auth_key)


def _github(signed: Signed) -> Claim | Problem:
    """``sha256=<hex>`` over the body. https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries"""
    header = signed.headers.get(signing.GITHUB_SIGNATURE)
    if not header:
        return Problem.MISSING
    found = _GITHUB.fullmatch(header.strip())
    if found is None:
        return Problem.MALFORMED
    return Claim([bytes.fromhex(found[1])], lambda secret: [signing.github_mac(secret, signed.body)])


def _stripe(signed: Signed) -> Claim | Problem:
    """``t=<seconds>,v1=<hex>[,v1=<hex>...]``; other schemes in it are ignored. https://docs.stripe.com/webhooks"""
    header = signed.headers.get(signing.STRIPE_SIGNATURE)
    if not header:
        return Problem.MISSING
    parts = header.split(",", _MAX_PARTS)
    found = [_STRIPE_PART.fullmatch(part) for part in parts]
    pairs = [(part[1], part[2]) for part in found if part is not None]
    times = [value for name, value in pairs if name == "t"]
    signatures = [bytes.fromhex(value) for name, value in pairs if name == "v1" and _HEX_MAC.fullmatch(value)]
    if len(pairs) != len(parts) or len(times) != 1 or not _SECONDS.fullmatch(times[0]) or not signatures:
        return Problem.MALFORMED
    return Claim(signatures, lambda secret: [signing.stripe_mac(secret, times[0], signed.body)], float(times[0]))


def _hubspot(signed: Signed) -> Claim | Problem:
    """Version 3: base64 over method, URI, body and a timestamp in milliseconds.

    HubSpot's documentation decodes some escapes of the URI, its own libraries decode none; either is accepted.
    https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation
    """
    header = signed.headers.get(signing.HUBSPOT_SIGNATURE)
    timestamp = signed.headers.get(signing.HUBSPOT_TIMESTAMP)
    if not header or not timestamp:
        return Problem.MISSING
    if not _BASE64_MAC.fullmatch(header) or not _MILLISECONDS.fullmatch(timestamp):
        return Problem.MALFORMED
    uris = sorted({signed.public_uri, signing.hubspot_uri(signed.public_uri)})

    def macs(secret: bytes) -> Iterable[bytes]:
        return [signing.hubspot_mac(secret, signed.method, uri, signed.body, timestamp) for uri in uris]

    return Claim([base64.b64decode(header)], macs, int(timestamp) / 1000)


def _slack(signed: Signed) -> Claim | Problem:
    """``v0=<hex>`` over ``v0:timestamp:body``. https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    header = signed.headers.get(signing.SLACK_SIGNATURE)
    timestamp = signed.headers.get(signing.SLACK_TIMESTAMP)
    if not header or not timestamp:
        return Problem.MISSING
    found = _SLACK.fullmatch(header)
    if found is None or not _SECONDS.fullmatch(timestamp):
        return Problem.MALFORMED
    signature = bytes.fromhex(found[1])
    return Claim([signature], lambda secret: [signing.slack_mac(secret, timestamp, signed.body)], float(timestamp))


def _shopify(signed: Signed) -> Claim | Problem:
    """Base64 over the body; no time is signed. https://shopify.dev/docs/apps/build/webhooks/subscribe/https"""
    header = signed.headers.get(signing.SHOPIFY_SIGNATURE)
    if not header:
        return Problem.MISSING
    if not _BASE64_MAC.fullmatch(header):
        return Problem.MALFORMED
    return Claim([base64.b64decode(header)], lambda secret: [signing.shopify_mac(secret, signed.body)])


def _standard(signed: Signed) -> Claim | Problem:
    """``v1,<base64>`` values, separated by spaces, over ``id.timestamp.body``; other versions are ignored.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    for prefix in signing.STANDARD_PREFIXES:
        sent = [signed.headers.get(f"{prefix}-{part}") for part in ("id", "timestamp", "signature")]
        message_id, timestamp, header = sent
        if message_id and timestamp and header:
            return _standard_claim(message_id, timestamp, header, signed.body)
    return Problem.MISSING


def _standard_claim(message_id: str, timestamp: str, header: str, body: bytes) -> Claim | Problem:
    found = [_STANDARD_PART.fullmatch(part) for part in header.split(" ", _MAX_PARTS)[:_MAX_PARTS]]
    signatures = [base64.b64decode(part[1]) for part in found if part is not None]
    if not signatures or not _SECONDS.fullmatch(timestamp):
        return Problem.MALFORMED

    def macs(secret: bytes) -> Iterable[bytes]:
        key = signing.standard_key(secret)
        return [] if key is None else [signing.standard_mac(key, message_id, timestamp, body)]

    return Claim(signatures, macs, float(timestamp))


def _gitlab(signed: Signed) -> Claim | Problem:
    """The secret token as it is, or a Standard Webhooks signature where GitLab has a signing token.

    https://docs.gitlab.com/user/project/integrations/webhooks/#validate-webhook-payloads
    """
    token = _auth_key(AuthKeyCheck(header=signing.GITLAB_TOKEN), signed)
    return _standard(signed) if token is Problem.MISSING else token


def _hmac(check: HmacCheck, signed: Signed) -> Claim | Problem:
    """An HMAC over the body, where and how the source says."""
    header = signed.headers.get(check.header, "").strip()
    if not header:
        return Problem.MISSING
    text = header[len(check.prefix) :]
    size = signing.MAC_BYTES[check.algorithm]
    if not header.startswith(check.prefix):
        return Problem.MALFORMED
    if check.encoding == "hex":
        signature = bytes.fromhex(text) if len(text) == 2 * size and _HEX.fullmatch(text) else None
    else:
        signature = base64.b64decode(text) if len(text) == (size + 2) // 3 * 4 and _BASE64.fullmatch(text) else None
    if signature is None or len(signature) != size:
        return Problem.MALFORMED
    return Claim([signature], lambda secret: [signing.generic_mac(secret, signed.body, check.algorithm)])


def _auth_key(check: AuthKeyCheck, signed: Signed) -> Claim | Problem:
    """The secret itself, of which ingest kept the hash only."""
    header = signed.headers.get(check.header)
    if not header:
        return Problem.MISSING
    if not _HASHED.fullmatch(header):
        return Problem.MALFORMED
    before = check.text_before.encode("ascii")

    def macs(secret: bytes) -> Iterable[bytes]:
        return [hashed_credential(check.header, before + secret).encode("ascii")]

    return Claim([header.encode("ascii")], macs)


SCHEMES: Mapping[str, Reader] = {
    "github": _github,
    "gitlab": _gitlab,
    "stripe": _stripe,
    "hubspot": _hubspot,
    "slack": _slack,
    "shopify": _shopify,
    "standard": _standard,
}
