"""How a cycle can stop before its model has ended it. ``kind`` is a bounded name."""

from __future__ import annotations


class Stop(Exception):
    """Root of these."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Failed(Stop):
    """By its own fault: an attempt of its events, a failure of its room."""


class Abandoned(Stop):
    """By nobody's fault, and it will not go on: what is undecided waits as before for another cycle."""


class Suspended(Stop):
    """By nobody's fault, and it goes on from here, under another lease."""
