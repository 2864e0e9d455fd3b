from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain.charts import (
    axis_top,
    latency_chart,
    outcome_shares,
    tokens_chart,
    volume_chart,
)
from room_admin.domain.chronicle import By, chronicle, start_of
from room_common.domain.deliveries import OUTCOMES

ROWS = st.lists(
    st.fixed_dictionaries(
        {"slot": st.integers(-2, 40), "outcome": st.sampled_from(sorted(OUTCOMES)), "items": st.integers(1, 10**9)}
    ),
    max_size=60,
)


@given(st.floats(0, 1e12))
def test_the_axis_ends_at_or_above_the_highest(highest: float) -> None:
    top = axis_top(highest)
    assert top >= highest * (1 - 1e-6)
    assert highest < 1e-6 or top <= highest * 2.6


@given(ROWS)
def test_bars_stay_on_the_axis_and_lose_nothing(rows: list[dict[str, object]]) -> None:
    chart = volume_chart(rows, 24, 3600)
    assert len(chart.bars) == chart.slots == 24
    assert chart.empty == (not rows)
    for bar in chart.bars:
        assert all(part.height >= 0 and part.bottom + part.height <= 100.0001 for part in bar.parts)
    told = sum(int(cell.replace(",", "")) for row in chart.rows for cell in row[1:])
    assert told == sum(int(str(row["items"])) for row in rows)


def test_volume_is_told_oldest_first() -> None:
    chart = volume_chart([{"slot": 0, "outcome": "matched", "items": 3}], 24, 3600)
    assert chart.bars[-1].title == "the last 1 h: 3 matched"
    assert chart.bars[0].title == "1 d to 23 h ago: nothing"
    assert chart.top == "5"


def test_latency_has_gaps_where_nothing_was_measured() -> None:
    rows = [{"slot": slot, "items": 1, "seconds": [1.0, 2.0]} for slot in (0, 1, 5)]
    chart = latency_chart(rows, 6, 60)
    assert [[len(run) for run in line.runs] for line in chart.lines] == [[1, 2], [1, 2]]
    assert chart.lines[1].runs[0] == ((0, 100.0),)
    assert latency_chart([], 6, 60).empty


def test_tokens_by_day_and_tier() -> None:
    rows = [{"days_ago": 0, "tier": "fast", "tokens": 40}, {"days_ago": 0, "tier": "standard", "tokens": 10}]
    chart = tokens_chart(rows, 14, date(2026, 5, 4))
    assert chart.rows == (("04 May", "10", "40"),)


def test_shares_of_outcomes() -> None:
    rows = [{"outcome": "matched", "items": 1}, {"outcome": "no_match", "items": 3}, {"outcome": "matched", "items": 1}]
    assert [(name, items) for name, items, _ in outcome_shares(rows)] == [("no_match", 3), ("matched", 2)]
    assert outcome_shares([]) == []


@given(st.dates(), st.sampled_from(["day", "week", "month"]))
def test_a_period_begins_with_or_before_its_days(day: date, by: By) -> None:
    if day < date(1, 1, 10):
        return
    start = start_of(day, by)
    assert timedelta(0) <= day - start < timedelta(31)
    assert start_of(start, by) == start


def test_the_chronicle_puts_days_and_what_was_summed_up_together() -> None:
    monday = date(2026, 5, 4)
    days = [
        {"log_date": monday + timedelta(2), "kind": "message_sent", "severity": "info", "actions": 2},
        {"log_date": monday, "kind": "error", "severity": "error", "actions": 1},
    ]
    week = {
        "log_date": date(2026, 4, 27),
        "log_type": "weekly",
        "severity": "info",
        "counts": {"error": 4},
        "content": "w",
    }
    month = {"log_date": date(2026, 3, 1), "log_type": "monthly", "severity": "info", "counts": {}, "content": "m"}
    by_day = chronicle(days, [week, month], "day")
    assert [(period.start, period.total) for period in by_day] == [(monday + timedelta(2), 2), (monday, 1)]
    by_week = chronicle(days, [week, month], "week")
    assert [(period.total, period.worst, period.texts) for period in by_week] == [(3, "error", []), (4, "info", ["w"])]
    by_month = chronicle(days, [week, month], "month")
    assert [(period.start.month, period.total) for period in by_month] == [(5, 3), (4, 4), (3, 0)]
