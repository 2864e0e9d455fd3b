from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_matcher.domain.dead_limit import (
    BESIDE_SECONDS,
    FIRST_PAUSE_SECONDS,
    IN_A_ROW,
    LONGEST_PAUSE_SECONDS,
    WINDOW_SECONDS,
    DeadLimit,
)


def turn(limit: DeadLimit, now: float) -> float:
    """Ask for one more death, which is over at once."""
    wait = limit.begin(now)
    if wait == 0:
        limit.end()
    return wait


def reached(limit: DeadLimit, now: float = 0.0) -> DeadLimit:
    while not limit.died(now):
        pass
    return limit


def test_twenty_in_a_row_are_too_many_and_one_that_lives_breaks_the_row() -> None:
    limit = DeadLimit()
    for _ in range(4000):  # keeps the share low
        limit.lived(0)
    assert [limit.died(0) for _ in range(IN_A_ROW - 1)] == [False] * (IN_A_ROW - 1)
    limit.lived(0)
    assert not limit.died(0)
    assert [limit.died(0) for _ in range(IN_A_ROW - 1)] == [False] * (IN_A_ROW - 2) + [True]
    assert limit.held


def test_more_than_a_twentieth_of_ten_minutes_is_too_many() -> None:
    limit = DeadLimit()
    for number in range(IN_A_ROW - 1):
        assert not limit.died(number)
        for _ in range(18):
            limit.lived(number)
    assert limit.died(IN_A_ROW)


def test_what_is_older_than_the_window_does_not_count() -> None:
    limit = DeadLimit()
    for _ in range(IN_A_ROW - 1):
        limit.died(0)
        limit.lived(0)
    later = WINDOW_SECONDS + 20
    assert not limit.died(later)
    assert not limit.held


def test_while_held_one_may_die_after_each_pause_and_the_pauses_grow() -> None:
    limit = reached(DeadLimit())
    assert turn(limit, 0) == FIRST_PAUSE_SECONDS
    assert turn(limit, FIRST_PAUSE_SECONDS) == 0
    limit.died(FIRST_PAUSE_SECONDS)
    assert turn(limit, FIRST_PAUSE_SECONDS) == 2 * FIRST_PAUSE_SECONDS
    now = FIRST_PAUSE_SECONDS
    for _ in range(10):
        now += turn(limit, now)
        assert turn(limit, now) == 0
    assert turn(limit, now) == LONGEST_PAUSE_SECONDS


def test_those_that_die_side_by_side_count_before_they_are_dead() -> None:
    limit = DeadLimit()
    assert [limit.begin(0) for _ in range(IN_A_ROW)] == [0.0] * IN_A_ROW
    assert limit.begin(0) == BESIDE_SECONDS
    limit.lived(0)
    limit.end()
    assert limit.begin(0) == 0


def test_one_that_lives_ends_the_hold_and_the_next_one_goes_on_where_the_pause_was() -> None:
    limit = reached(DeadLimit())
    assert turn(limit, 5) == 0
    assert limit.lived(6)
    assert not limit.lived(6)
    assert turn(limit, 6) == 0
    assert [limit.died(7) for _ in range(IN_A_ROW)][-1]
    assert turn(limit, 7) == 2 * FIRST_PAUSE_SECONDS
    assert limit.lived(8)
    later = 8 + WINDOW_SECONDS + 1
    assert turn(reached(limit, later), later) == FIRST_PAUSE_SECONDS


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=300))
def test_between_two_that_live_no_more_die_than_the_limit_and_one_for_each_pause(
    steps: list[tuple[bool, float]],
) -> None:
    limit = DeadLimit()
    now, row, began = 0.0, 0, 0.0
    for dies, pause in steps:
        now += pause
        if not dies:
            limit.lived(now)
            row, began = 0, now
        elif turn(limit, now) == 0:
            limit.died(now)
            row += 1
            assert row <= IN_A_ROW + (now - began) / FIRST_PAUSE_SECONDS
