from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_matcher.domain.dead_limit import (
    FIRST_PAUSE_SECONDS,
    IN_A_ROW,
    LONGEST_PAUSE_SECONDS,
    WINDOW_SECONDS,
    DeadLimit,
)


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
    assert limit.wait(0) == FIRST_PAUSE_SECONDS
    assert limit.wait(FIRST_PAUSE_SECONDS) == 0
    limit.died(FIRST_PAUSE_SECONDS)
    assert limit.wait(FIRST_PAUSE_SECONDS) == 2 * FIRST_PAUSE_SECONDS
    now = FIRST_PAUSE_SECONDS
    for _ in range(10):
        now += limit.wait(now)
        assert limit.wait(now) == 0
    assert limit.wait(now) == LONGEST_PAUSE_SECONDS


def test_one_that_lives_ends_the_hold_and_the_next_one_goes_on_where_the_pause_was() -> None:
    limit = reached(DeadLimit())
    assert limit.wait(5) == 0
    assert limit.lived(6)
    assert not limit.lived(6)
    assert limit.wait(6) == 0
    assert [limit.died(7) for _ in range(IN_A_ROW)][-1]
    assert limit.wait(7) == 2 * FIRST_PAUSE_SECONDS
    assert limit.lived(8)
    later = 8 + WINDOW_SECONDS + 1
    assert reached(limit, later).wait(later) == FIRST_PAUSE_SECONDS


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
        elif limit.wait(now) == 0:
            limit.died(now)
            row += 1
            assert row <= IN_A_ROW + (now - began) / FIRST_PAUSE_SECONDS
