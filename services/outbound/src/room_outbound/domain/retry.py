"""When a failed delivery is tried again: 8 tries in about an hour (behaviour, outbound and replies)."""

from __future__ import annotations

from typing import Final

DELAYS: Final = (5.0, 15.0, 60.0, 180.0, 420.0, 900.0, 1800.0)
"""Seconds before the second to the eighth try."""

MAX_ATTEMPTS: Final = len(DELAYS) + 1

LONGEST_WISH: Final = 3600.0
"""Seconds of a provider's Retry-After that are honoured at most."""

NOT_ACCEPTED: Final = frozenset({"connect", "rate_limit"})
"""Kinds of failure after which the provider certainly has not accepted the message: even a channel that wants nothing
twice may try again. After any other (a time-out, a reset, a 5xx) it may have."""


def delay_after(attempt: int, retry_after: float | None, jitter: float) -> float | None:
    """Seconds until the next try after try number ``attempt`` failed, or None when that was the last one.

    ``jitter`` is a random number from 0 to 1, which spreads a delay by up to a fifth. A provider's own wish is never
    undercut.
    """
    if attempt >= MAX_ATTEMPTS:
        return None
    own = DELAYS[max(attempt, 1) - 1] * (1.0 + 0.2 * jitter)
    return own if retry_after is None else max(own, min(max(retry_after, 0.0), LONGEST_WISH))
