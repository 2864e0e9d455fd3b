from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_local.backoff import FIRST_SECONDS, HEALTHY_SECONDS, LONGEST_SECONDS, Backoff, memory_verdict


def test_delays_double_up_to_the_longest() -> None:
    state, delays = Backoff(), []
    for _ in range(9):
        state, delay = state.after(0)
        delays.append(delay)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_healthy_run_starts_over() -> None:
    state, _ = Backoff(failures=8).after(HEALTHY_SECONDS)
    assert state.after(0)[1] == 2 * FIRST_SECONDS


@given(st.integers(0, 10_000), st.floats(0, 1e9))
def test_a_delay_is_always_bounded(failures: int, ran: float) -> None:
    assert FIRST_SECONDS <= Backoff(failures).after(ran)[1] <= LONGEST_SECONDS


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 50))
def test_no_restart_without_a_warning(resident: int, limit: int) -> None:
    assert memory_verdict(resident, limit, warned=False) != "restart"


def test_a_broker_is_warned_about_and_then_restarted() -> None:
    assert memory_verdict(74, 100, warned=False) == "fine"
    assert memory_verdict(75, 100, warned=False) == "warn"
    assert memory_verdict(99, 100, warned=True) == "fine"
    assert memory_verdict(100, 100, warned=True) == "restart"
