"""The schedule of delivery tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_outbound.domain.retry import DELAYS, LONGEST_WISH, MAX_ATTEMPTS, delay_after

jitters = st.floats(0, 1)
wishes = st.none() | st.floats(-10, 1e9)


def test_eight_tries_take_about_an_hour() -> None:
    assert MAX_ATTEMPTS == 8
    assert 2700 <= sum(DELAYS) <= 4500


@given(st.integers(1, 7), wishes, jitters)
def test_a_delay_is_never_shorter_than_ours_nor_than_the_providers_wish(
    attempt: int, wish: float | None, jitter: float
) -> None:
    delay = delay_after(attempt, wish, jitter)
    assert delay is not None
    assert delay >= DELAYS[attempt - 1]
    assert delay <= max(DELAYS[attempt - 1] * 1.2, LONGEST_WISH)
    if wish is not None:
        assert delay >= min(wish, LONGEST_WISH)


@given(st.integers(8, 100), wishes, jitters)
def test_the_eighth_try_is_the_last(attempt: int, wish: float | None, jitter: float) -> None:
    assert delay_after(attempt, wish, jitter) is None
