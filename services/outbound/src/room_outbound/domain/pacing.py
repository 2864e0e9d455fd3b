"""How fast one account of a provider may be used: a token bucket that a provider's own wish can close for a while."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """``rate`` calls a second in the long run, ``burst`` at once."""

    rate: float
    burst: float


class Bucket:
    """One account. ``now`` is seconds on any clock that only goes forward."""

    __slots__ = ("_closed_until", "_left", "_pace", "_seen")

    def __init__(self, pace: Pace, now: float) -> None:
        self._pace = pace
        self._left = pace.burst
        self._seen = now
        self._closed_until = now

    def take(self, now: float) -> float:
        """Take one call and return 0, or return the seconds after which to ask again, and take none."""
        if now < self._closed_until:
            return self._closed_until - now
        self._left = min(self._pace.burst, self._left + max(0.0, now - self._seen) * self._pace.rate)
        self._seen = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._pace.rate

    def close(self, now: float, seconds: float) -> None:
        """Let nothing through for a while: the provider said so."""
        self._closed_until = max(self._closed_until, now + seconds)
