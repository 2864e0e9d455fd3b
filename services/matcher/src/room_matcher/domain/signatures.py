"""Signatures of webhooks: a total function over the received bytes.

No header, however malformed, raises; every comparison of a signature takes constant time; a timestamp is compared with
the moment the request was received, so that a record judged late is judged the same.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from room_common.contracts.source_config import Verify
from room_matcher.domain.signature_schemes import SCHEMES, Claim, Problem, Signed, reader_of

__all__ = ["SCHEMES", "TOLERANCE_S", "Problem", "Signed", "Verification", "verify"]

TOLERANCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Verification:
    """``problem`` is None exactly when the request is verified."""

    problem: Problem | None = None

    @property
    def verified(self) -> bool:
        """Whether one of the secrets made this request's signature in time."""
        return self.problem is None


def verify(
    scheme: str, secrets: Sequence[bytes], signed: Signed, *, check: Verify | None = None, check_age: bool = True
) -> Verification:
    """Verify a request under a scheme (a source type); any of the secrets may have signed it.

    ``check`` is how a generic source is verified. ``check_age=False`` is for a replay of a recorded delivery. The
    signature is compared before the age, so ``stale`` means a right signature outside 300 s of its receipt.
    """
    reader = reader_of(scheme, check)
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


def _made_by_one_of(secrets: Sequence[bytes], claim: Claim) -> bool:
    """Every pair is compared, so that the time tells neither which secret nor which signature was right."""
    found = False
    for secret in secrets:
        for expected in claim.macs(secret):
            for signature in claim.signatures:
                found |= hmac.compare_digest(expected, signature)
    return found
