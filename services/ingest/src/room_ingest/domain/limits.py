"""How much of one producer is taken at a time. Time is an argument, in seconds of any monotonic clock."""

from __future__ import annotations


class TokenBucket:
    """Lets ``rate`` through per second and up to ``burst`` at once. A rate of 0 lets everything through."""

    __slots__ = ("_burst", "_rate", "_stamp", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._tokens = self._burst
        self._stamp = now

    def take(self, now: float) -> bool:
        """Take one, if one is there. A clock that went backwards gives nothing and takes nothing away."""
        if not self._rate:
            return True
        if now > self._stamp:
            self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._rate)
            self._stamp = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
