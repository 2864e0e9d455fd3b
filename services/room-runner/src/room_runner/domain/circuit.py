"""Whether the model provider can be counted on: closed while it answers, open from the first trouble (behaviour 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FIRST_PROBE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """Times are monotonic seconds. The first probe comes soon: trouble with one call is often that call's own."""

    probe_seconds: float
    probe_at: float | None = None

    @property
    def closed(self) -> bool:
        """Whether work may begin."""
        return self.probe_at is None

    def troubled(self, now: float) -> Circuit:
        """After a call met trouble. An open circuit keeps its next probe."""
        if self.probe_at is not None:
            return self
        return replace(self, probe_at=now + min(FIRST_PROBE, self.probe_seconds))

    def answered(self) -> Circuit:
        """After a call was answered, be it with a refusal."""
        return replace(self, probe_at=None)

    def probe_due(self, now: float) -> bool:
        """Whether somebody should ask the provider now."""
        return self.probe_at is not None and now >= self.probe_at

    def probing(self, now: float) -> Circuit:
        """When a probe starts: the next one is an interval away, unless this one closes the circuit."""
        return self if self.probe_at is None else replace(self, probe_at=now + self.probe_seconds)
