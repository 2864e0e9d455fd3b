"""The aging of the activity log, as a pure function over rows.

This is the rule in the plainest words. PostgreSQL does the work, by the statements in
``room_common.postgres.compaction``; the tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import reduce
from typing import Final, Literal
from uuid import UUID

from room_common.domain.aging import DIGEST_ENTRIES, ENTRY_CHARACTERS, SHOWN_ENTRIES, aging_limits, month_of, week_of

LogType = Literal["daily", "weekly", "monthly"]
Severity = Literal["error", "warning", "info"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a digest keeps of one daily row. ``at`` is a time in UTC, as a text that sorts like the time."""

    severity: Severity
    at: str
    id: str
    kind: str
    text: str

    @property
    def order(self) -> tuple[int, str, str]:
        """By severity, time and id."""
        return SEVERITIES.index(self.severity), self.at, self.id


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the activity log."""

    id: UUID
    instance_id: UUID
    log_date: date
    log_type: LogType
    kind: str
    severity: Severity
    content: str
    counts: Mapping[str, int]
    event_count: int
    occurred_at: datetime
    digest: tuple[Entry, ...] = ()


def age(rows: Iterable[Row], today: date) -> list[Row]:
    """What the log of any number of instances becomes on ``today``, in no particular order."""
    limits = aging_limits(today)
    by_type: dict[LogType, list[Row]] = {"daily": [], "weekly": [], "monthly": []}
    for row in rows:
        by_type[row.log_type].append(row)
    young, old = _split(by_type["daily"], limits.daily_before)
    weekly, old = _split(_joined([*by_type["weekly"], *(_summary(row, "weekly") for row in old)]), limits.weekly_before)
    monthly = _joined([*by_type["monthly"], *(_summary(row, "monthly") for row in old)])
    kept, _ = _split(monthly, limits.monthly_before)
    return [*young, *weekly, *kept]


def merge(one: Row, other: Row) -> Row:
    """One row from two of the same instance and period. Associative and commutative."""
    counts = {key: one.counts.get(key, 0) + other.counts.get(key, 0) for key in one.counts.keys() | other.counts.keys()}
    digest = tuple(sorted([*one.digest, *other.digest], key=lambda entry: entry.order)[:DIGEST_ENTRIES])
    return replace(
        one,
        severity=min(one.severity, other.severity, key=SEVERITIES.index),
        counts=counts,
        digest=digest,
        event_count=one.event_count + other.event_count,
        content=render(counts, digest),
    )


def render(counts: Mapping[str, int], digest: Sequence[Entry]) -> str:
    """The text of a weekly or monthly row, from nothing but its counts and its digest."""
    lines = [", ".join(f"{key} {counts[key]}" for key in sorted(counts))] if counts else []
    lines += [f"{entry.severity} {entry.at[:16]}Z {entry.text}" for entry in digest[:SHOWN_ENTRIES]]
    return "\n".join(lines)


def _split(rows: Iterable[Row], before: date) -> tuple[list[Row], list[Row]]:
    """The rows that stay, and those dated before the limit."""
    rows = list(rows)
    return [row for row in rows if row.log_date >= before], [row for row in rows if row.log_date < before]


def _joined(rows: Iterable[Row]) -> list[Row]:
    periods: dict[tuple[UUID, date], list[Row]] = {}
    for row in rows:
        periods.setdefault((row.instance_id, row.log_date), []).append(row)
    return [reduce(merge, group) for group in periods.values()]


def _summary(row: Row, target: LogType) -> Row:
    """A row as the only one of its next longer period."""
    period = week_of(row.log_date) if target == "weekly" else month_of(row.log_date)
    digest = row.digest if row.log_type != "daily" else (_entry(row),)
    return Row(
        id=_period_id(row.instance_id, period, target),
        instance_id=row.instance_id,
        log_date=period,
        log_type=target,
        kind="summary",
        severity=row.severity,
        content=render(row.counts, digest),
        counts=row.counts,
        event_count=row.event_count,
        occurred_at=datetime.combine(period, time(), UTC),
        digest=digest,
    )


def _entry(row: Row) -> Entry:
    return Entry(
        severity=row.severity,
        at=_utc_text(row.occurred_at),
        id=str(row.id),
        kind=row.kind,
        text=row.content[:ENTRY_CHARACTERS],
    )


def _utc_text(moment: datetime) -> str:
    """Without a zone and without zeros at the end of a fraction, as PostgreSQL writes it."""
    whole, _, fraction = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f").partition(".")
    return f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction.strip("0") else whole


def _period_id(instance_id: UUID, period: date, log_type: LogType) -> UUID:
    """The instance's id with the period's first millisecond as its time, the second one for a month."""
    milliseconds = int(datetime.combine(period, time(), UTC).timestamp()) * 1000 + (log_type == "monthly")
    return UUID(int=(milliseconds << 80) | (instance_id.int & (1 << 80) - 1))
