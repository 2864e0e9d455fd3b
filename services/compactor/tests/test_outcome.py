"""What a run came to."""

from __future__ import annotations

import pytest

from room_compactor.domain.outcome import Outcome, outcome_of


@pytest.mark.parametrize(
    ("jobs", "outcome"),
    [
        ([], None),
        ([(True, 0)], Outcome.SUCCEEDED),
        ([(True, 0), (True, 1)], Outcome.FAILED),
        ([(True, 0), (False, 0)], Outcome.INTERRUPTED),
        ([(False, 1), (False, 0)], Outcome.FAILED),
    ],
)
def test_outcome(jobs: list[tuple[bool, int]], outcome: Outcome | None) -> None:
    assert outcome_of(jobs) is outcome
