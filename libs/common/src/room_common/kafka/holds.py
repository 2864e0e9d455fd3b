"""When consumption has to wait, why, and when to try whether it may go on. Pure: ``now`` is monotonic seconds."""

from __future__ import annotations

from typing import Final

LONGEST_WISH_SECONDS: Final = 60.0
"""A dependency's own wish for the next attempt is obeyed up to this."""


class Holds:
    """The reasons why nothing is started.

    A hold is released by name, or, where it allows probing, by the success of a probe: one record that is let through
    every ``probe_seconds``. One hold without probing is enough to forbid probes. A hold that is added again while the
    probe runs outlives it: what the probe met still is so.
    """

    def __init__(self, probe_seconds: float) -> None:
        self._probe_seconds = probe_seconds
        self._reasons: dict[str, bool] = {}
        self._next_probe = 0.0
        self._renewed: set[str] = set()
        self.probing = False

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self._reasons)

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, reason: str, now: float, *, probe: bool, wish: float | None = None) -> None:
        """Hold, or hold on. ``wish`` is the dependency's own, in seconds."""
        self._reasons[reason] = probe and self._reasons.get(reason, True)
        self._renewed.add(reason)
        wait = max(self._probe_seconds, min(wish or 0.0, LONGEST_WISH_SECONDS))
        self._next_probe = max(self._next_probe, now + wait)

    def release(self, reason: str | None = None) -> tuple[str, ...]:
        """End one hold, or all. Returns those that ended."""
        ended = self.reasons if reason is None else tuple(name for name in self._reasons if name == reason)
        for name in ended:
            del self._reasons[name]
        if not self._reasons:
            self._next_probe = 0.0
        return ended

    def begin_probe(self) -> None:
        """A record is let through."""
        self.probing = True
        self._renewed.clear()

    def end_probe(self, *, success: bool) -> tuple[str, ...]:
        """It is over. Returns the holds that ended with it."""
        self.probing = False
        if not success:
            return ()
        ended = tuple(name for name in self._reasons if name not in self._renewed)
        for name in ended:
            self.release(name)
        return ended

    @property
    def may_probe(self) -> bool:
        """Whether there is a hold and all of them allow probing."""
        return bool(self._reasons) and all(self._reasons.values())

    def probe_due(self, now: float) -> bool:
        """Whether one record may be let through now."""
        return self.may_probe and not self.probing and now >= self._next_probe
