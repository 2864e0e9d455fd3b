"""A room's activity by day, week and month: what is kept one by one and what was summed up, put together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Literal

By = Literal["day", "week", "month"]
Row = Mapping[str, Any]


@dataclass(slots=True)
class Period:
    """A day, a week from its Monday on, or a month. ``texts``: what was summed up of it, with whether it is a month."""

    start: date
    kinds: Counter[str] = field(default_factory=Counter)
    worst: str = "info"
    texts: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Actions in it."""
        return self.kinds.total()


_WORSE = {"info": 0, "warning": 1, "error": 2}


def start_of(day: date, by: By) -> date:
    """The first day of the period that a day is in."""
    if by == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if by == "month" else day


def chronicle(days: Iterable[Row], aged: Iterable[Row], by: By) -> list[Period]:
    """Periods, newest first. A week belongs to its Monday's month; a month that was summed up has no days or weeks."""
    periods: dict[date, Period] = {}

    def of(day: date) -> Period:
        start = start_of(day, by)
        return periods.setdefault(start, Period(start))

    for row in days:
        _add(of(row["log_date"]), {row["kind"]: row["actions"]}, row["severity"])
    for row in aged:
        if by == "day" or (by == "week" and row["log_type"] == "monthly"):
            continue
        period = of(row["log_date"])
        _add(period, row["counts"] if isinstance(row["counts"], dict) else {}, row["severity"])
        period.texts.append(row["content"])
    return [periods[start] for start in sorted(periods, reverse=True)]


def _add(period: Period, counts: Mapping[str, Any], severity: str) -> None:
    for kind, number in counts.items():
        if isinstance(number, int):
            period.kinds[str(kind)] += number
    if _WORSE.get(severity, 0) > _WORSE.get(period.worst, 0):
        period.worst = severity
