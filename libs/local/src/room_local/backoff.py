"""When a process that died is started again, and when a growing broker is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
_WARN_AT = 0.75


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from 0.5 s to 30 s; a run of a minute or more makes them start over."""

    failures: int = 0

    def after(self, ran_seconds: float) -> tuple[Backoff, float]:
        """The next state and the seconds to wait, given how long the process ran this time."""
        failures = 0 if ran_seconds >= HEALTHY_SECONDS else self.failures
        delay = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures, 10))
        return Backoff(failures + 1), delay


def memory_verdict(resident: int, limit: int, *, warned: bool) -> Literal["fine", "warn", "restart"]:
    """What to do about a broker that keeps everything in memory: warn once at three quarters, restart at the limit.

    A restart comes only after a warning, however fast the broker grew.
    """
    if resident >= limit and warned:
        return "restart"
    if resident >= limit * _WARN_AT and not warned:
        return "warn"
    return "fine"
