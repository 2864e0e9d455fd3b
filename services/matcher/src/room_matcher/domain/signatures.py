"""Signatures of webhooks: total functions over the received bytes, one verifier per scheme.

No header, however malformed, raises; every comparison of a signature takes constant time; a timestamp is compared with
the moment the request was received, so that a record judged late is judged the same.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from room_common.domain.signing import (
    GITHUB_SIGNATURE,
    HUBSPOT_SIGNATURE,
    HUBSPOT_TIMESTAMP,
    STRIPE_SIGNATURE,
    github_mac,
    hubspot_mac,
    hubspot_uri,
    stripe_mac,
)

TOLERANCE_S = 300.0

_GITHUB = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_STRIPE_PART = re.compile(r"\s*([a-z0-9_]{1,20})=([^\s,]{1,200})\s*", re.ASCII)
_STRIPE_MAX_PARTS = 64
_HEX_MAC = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BASE64_MAC = re.compile(r"[A-Za-z0-9+/]{43}=", re.ASCII)
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
class Verification:
    """``problem`` is None exactly when the request is verified."""

    problem: Problem | None = None

    @property
    def verified(self) -> bool:
        """Whether one of the secrets made this request's signature in time."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a request claims: its signatures, how one secret would sign it, and when it says it was signed."""

    signatures: Sequence[bytes] = field(repr=False)
    macs: Callable[[bytes], Iterable[bytes]]
    signed_at_s: float | None = None


Reader = Callable[[Signed], "_Claim | Problem"]


def verify(scheme: str, secrets: Sequence[bytes], signed: Signed, *, check_age: bool = True) -> Verification:
    """Verify a request under a scheme (a source type); any of the secrets may have signed it.

    ``check_age=False`` is for a replay of a recorded delivery. The signature is compared before the age, so ``stale``
    means a right signature outside 300 s of its receipt.
    """
    reader = SCHEMES.get(scheme.strip().lower())
    if reader is None:
        return Verification(Problem.UNKNOWN_SCHEME)
    usable = [secret for secret in secrets if secret]
    if not usable:
        return Verification(Problem.UNSECURED)
    claim = reader(signed)
    if isinstance(claim, Problem):
        return Verification(claim)
    if not _made_by_one_of(usable, claim):
        return Verification(Problem.MISMATCH)
    if check_age and claim.signed_at_s is not None and not _in_time(claim.signed_at_s, signed.received_at_s):
        return Verification(Problem.STALE)
    return Verification()


def _in_time(signed_at_s: float, received_at_s: float) -> bool:
    return abs(received_at_s - signed_at_s) <= TOLERANCE_S


def _made_by_one_of(secrets: Sequence[bytes], claim: _Claim) -> bool:
    """Every pair is compared, so that the time tells neither which secret nor which signature was right."""
    found = False
    for secret in secrets:
        for expected in claim.macs(secret):
            for signature in claim.signatures:
                found |= hmac.compare_digest(expected, signature)
    return found


def _github(signed: Signed) -> _Claim | Problem:
    """``sha256=<hex>`` over the body. https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries"""
    header = signed.headers.get(GITHUB_SIGNATURE)
    if not header:
        return Problem.MISSING
    found = _GITHUB.fullmatch(header.strip())
    if found is None:
        return Problem.MALFORMED
    return _Claim([bytes.fromhex(found[1])], lambda secret: [github_mac(secret, signed.body)])


def _stripe(signed: Signed) -> _Claim | Problem:
    """``t=<seconds>,v1=<hex>[,v1=<hex>...]``; other schemes in it are ignored. https://docs.stripe.com/webhooks"""
    header = signed.headers.get(STRIPE_SIGNATURE)
    if not header:
        return Problem.MISSING
    parts = header.split(",", _STRIPE_MAX_PARTS)
    found = [_STRIPE_PART.fullmatch(part) for part in parts]
    pairs = [(part[1], part[2]) for part in found if part is not None]
    times = [value for name, value in pairs if name == "t"]
    signatures = [bytes.fromhex(value) for name, value in pairs if name == "v1" and _HEX_MAC.fullmatch(value)]
    if len(pairs) != len(parts) or len(times) != 1 or not _SECONDS.fullmatch(times[0]) or not signatures:
        return Problem.MALFORMED
    return _Claim(signatures, lambda secret: [stripe_mac(secret, times[0], signed.body)], float(times[0]))


def _hubspot(signed: Signed) -> _Claim | Problem:
    """Version 3: base64 over method, URI, body and a timestamp in milliseconds.

    HubSpot's documentation decodes some escapes of the URI, its own libraries decode none; either is accepted.
    https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation
    """
    header, timestamp = signed.headers.get(HUBSPOT_SIGNATURE), signed.headers.get(HUBSPOT_TIMESTAMP)
    if not header or not timestamp:
        return Problem.MISSING
    if not _BASE64_MAC.fullmatch(header) or not _MILLISECONDS.fullmatch(timestamp):
        return Problem.MALFORMED
    uris = sorted({signed.public_uri, hubspot_uri(signed.public_uri)})

    def macs(secret: bytes) -> Iterable[bytes]:
        return [hubspot_mac(secret, signed.method, uri, signed.body, timestamp) for uri in uris]

    return _Claim([base64.b64decode(header)], macs, int(timestamp) / 1000)


SCHEMES: Mapping[str, Reader] = {"github": _github, "stripe": _stripe, "hubspot": _hubspot}
