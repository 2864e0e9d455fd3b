"""The rule of aging, without a database."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.domain.aging import aging_limits, month_of, week_of
from room_testing.aging_model import SEVERITIES, Row, age, merge, render

TODAY = date(2026, 11, 30)
INSTANCES = [UUID("01890a5d-ac96-774b-bcce-b302099a8057"), UUID("01890a5d-ac96-7ab4-80b7-1e1be2a3e7c5")]


def daily(number: int, days: int, instance: int = 0, severity: int = 2, kind: str = "event_matched") -> Row:
    day = TODAY - timedelta(days=days)
    return Row(
        id=UUID(int=number, version=4),
        instance_id=INSTANCES[instance],
        log_date=day,
        log_type="daily",
        kind=kind,
        severity=SEVERITIES[severity],
        content=f"something {number}",
        counts={kind: 1},
        event_count=1,
        occurred_at=datetime.combine(day, time(12, number % 60), UTC),
    )


def rows(most: int = 60) -> st.SearchStrategy[list[Row]]:
    drawn = st.tuples(
        st.integers(0, 500), st.integers(0, 1), st.integers(0, 2), st.sampled_from(["event_matched", "error"])
    )
    return st.lists(drawn, max_size=most).map(
        lambda given: [daily(number + 1, *of_one) for number, of_one in enumerate(given)]
    )


def as_set(log: Iterable[Row]) -> list[Row]:
    return sorted(log, key=lambda row: (row.instance_id, row.log_type, row.log_date, row.id))


@given(rows())
def test_a_second_run_changes_nothing(log: list[Row]) -> None:
    once = age(log, TODAY)
    assert as_set(age(once, TODAY)) == as_set(once)


@given(rows())
def test_day_by_day_ends_where_one_late_run_ends(log: list[Row]) -> None:
    days = log
    for ago in range(60, -1, -1):
        there = [row for row in days if row.log_date <= TODAY - timedelta(days=ago)]
        later = [row for row in days if row.log_date > TODAY - timedelta(days=ago)]
        days = [*age(there, TODAY - timedelta(days=ago)), *later]
    assert as_set(days) == as_set(age(log, TODAY))


@given(rows(), st.integers(1, 20), st.randoms())
def test_batches_in_any_order_end_where_one_run_ends(log: list[Row], size: int, chance: random.Random) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    built: list[Row] = []
    for start in range(0, len(shuffled), size):
        built = age([*built, *shuffled[start : start + size]], TODAY)
    assert as_set(built) == as_set(age(log, TODAY))


@given(rows())
def test_nothing_is_counted_twice_or_lost_but_what_is_too_old(log: list[Row]) -> None:
    limits = aging_limits(TODAY)
    kept = [row for row in log if month_of(week_of(row.log_date)) >= limits.monthly_before]
    aged = age(log, TODAY)
    assert sum(row.event_count for row in aged) == len(kept)
    for kind in ("event_matched", "error"):
        assert sum(row.counts.get(kind, 0) for row in aged) == sum(row.counts.get(kind, 0) for row in kept)


def test_an_age_of_exactly_the_limit_stays() -> None:
    assert [row.log_type for row in age([daily(1, 7)], TODAY)] == ["daily"]
    (week,) = age([daily(1, 8)], TODAY)
    assert (week.log_type, week.log_date) == ("weekly", date(2026, 11, 16))
    # 2026-11-02 is a Monday, 28 days before: its week stays. A day later it is in its month.
    (week,) = age([daily(1, 25)], TODAY)
    assert (week.log_type, week.log_date) == ("weekly", date(2026, 11, 2))
    (month,) = age([week], TODAY + timedelta(days=1))
    assert (month.log_type, month.log_date) == ("monthly", date(2026, 11, 1))


def test_a_week_is_in_the_month_of_its_monday() -> None:
    # Thursday 2026-10-01 is in the week of Monday 2026-09-28.
    (month,) = age([daily(1, (TODAY - date(2026, 10, 1)).days)], TODAY)
    assert month.log_date == date(2026, 9, 1)


@pytest.mark.parametrize(
    ("today", "first_kept"),
    [
        (date(2026, 11, 30), date(2025, 11, 1)),
        (date(2026, 12, 1), date(2025, 12, 1)),
        (date(2028, 2, 29), date(2027, 2, 1)),
        (date(2026, 1, 1), date(2025, 1, 1)),
    ],
)
def test_twelve_calendar_months_are_kept(today: date, first_kept: date) -> None:
    assert aging_limits(today).monthly_before == first_kept


def test_the_digest_has_the_fifty_that_matter_most_and_the_text_the_first_five() -> None:
    log = [daily(number, 14, severity=number % 3) for number in range(1, 100)]
    (week,) = age(log, TODAY)
    assert len(week.digest) == 50
    assert [entry.order for entry in week.digest] == sorted(entry.order for entry in week.digest)
    assert {entry.severity for entry in week.digest} == {"error", "warning"}
    lines = week.content.splitlines()
    assert lines[0] == "event_matched 99"
    assert len(lines) == 6
    assert lines[1].startswith("error 2026-11-16 12:")
    assert week.severity == "error"


def test_the_text_is_made_of_nothing_but_counts_and_digest() -> None:
    assert render({}, ()) == ""
    assert render({"b": 2, "a": 1}, ()) == "a 1, b 2"


@given(rows(3).filter(lambda log: len(log) == 3))
def test_merging_is_associative_and_commutative(log: list[Row]) -> None:
    one, two, three = (
        age([daily(index + 1, 14, 0, SEVERITIES.index(row.severity), row.kind)], TODAY)[0]
        for index, row in enumerate(log)
    )
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, two) == merge(two, one)
