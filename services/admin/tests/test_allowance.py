from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_admin.allowance import Allowance


def test_a_burst_and_then_one_at_a_time() -> None:
    now = 100.0
    allowance = Allowance(2, 10.0, clock=lambda: now)
    assert [allowance.take("a") for _ in range(3)] == [0.0, 0.0, 10.0]
    assert allowance.take("b") == 0.0
    now = 109.0
    assert allowance.take("a") == 1.0
    now = 110.0
    assert [allowance.take("a") for _ in range(2)] == [0.0, 10.0]
    now = 1000.0
    assert [allowance.take("a") for _ in range(3)] == [0.0, 0.0, 10.0]


@given(st.lists(st.floats(0, 20), max_size=50))
def test_never_more_than_the_burst_and_one_for_each_period(steps: list[float]) -> None:
    now, taken = 0.0, 0
    allowance = Allowance(3, 10.0, clock=lambda: now)
    for step in steps:
        now += step
        taken += allowance.take("a") == 0.0
        assert taken <= 3 + now / 10 + 1e-6


def test_callers_are_forgotten_before_they_fill_the_memory() -> None:
    allowance = Allowance(1, 10.0, clock=lambda: 0.0)
    assert all(allowance.take(str(number)) == 0.0 for number in range(1500))
    assert allowance.take("1499") == 10.0
    assert allowance.take("0") == 0.0
