"""Spreading ticks."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from room_scheduler.domain.pacing import pause_between_pages


@given(st.floats(1, 3600), st.floats(0, 0.9), st.integers(1, 5000), st.integers(0, 10**7))
def test_all_pages_fit_into_their_share_of_the_interval(
    interval: float, spread: float, page: int, expected: int
) -> None:
    pause = pause_between_pages(interval, spread, page, expected)
    assert pause >= 0
    assert pause * math.ceil(expected / page) <= interval * spread + 1e-6


def test_one_page_is_not_delayed() -> None:
    assert pause_between_pages(30, 0.5, 500, 500) == 0
    assert pause_between_pages(30, 0.5, 500, 501) > 0
