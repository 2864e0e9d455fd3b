"""The bucket of an account."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_outbound.domain.pacing import Bucket, Pace


@given(st.floats(0.1, 50), st.integers(1, 20), st.lists(st.floats(0, 5), max_size=60))
def test_never_faster_than_the_pace(rate: float, burst: int, steps: list[float]) -> None:
    bucket = Bucket(Pace(rate, burst), 0.0)
    now, taken = 0.0, 0
    for step in steps:
        now += step
        wait = bucket.take(now)
        assert wait >= 0
        taken += wait == 0
        assert taken <= burst + rate * now + 1e-6


@given(st.floats(0.1, 50), st.integers(1, 20))
def test_after_the_wait_it_is_ones_turn(rate: float, burst: int) -> None:
    bucket = Bucket(Pace(rate, burst), 0.0)
    now = 0.0
    for _ in range(burst + 5):
        wait = bucket.take(now)
        if wait:
            now += wait + 1e-9
            assert bucket.take(now) == 0


def test_a_closed_bucket_lets_nothing_through() -> None:
    bucket = Bucket(Pace(10, 10), 0.0)
    bucket.close(0.0, 30.0)
    bucket.close(1.0, 5.0)
    assert bucket.take(10.0) == 20.0
    assert bucket.take(30.0) == 0.0


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = Bucket(Pace(1, 1), 5.0)
    assert bucket.take(5.0) == 0.0
    assert bucket.take(5.0) == 1.0
    assert bucket.take(4.0) == 1.0
