"""What a daily run came to."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum


class Outcome(Enum):
    """A run that was told to stop is neither a success nor a failure: others, or the next start, go on with it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


def outcome_of(jobs: Collection[tuple[bool, int]]) -> Outcome | None:
    """The outcome of a run from its jobs: whether each came to its end, and how many of its parts failed.

    None where there was nothing to do.
    """
    if not jobs:
        return None
    if any(failures for _, failures in jobs):
        return Outcome.FAILED
    return Outcome.SUCCEEDED if all(done for done, _ in jobs) else Outcome.INTERRUPTED
