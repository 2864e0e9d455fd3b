"""Bars and lines as numbers to draw: slots of time from the oldest to now, heights in percent of the axis. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from room_admin.domain.humane import duration, short_number
from room_admin.domain.words import tone

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_SMALLEST: Final = 1e-6
"""Below this an axis would have digits that nobody reads, and powers of ten that floats cannot tell apart."""
_GROUPS: Final = (("good", "matched"), ("quiet", "not matched"), ("warn", "dropped"), ("bad", "in trouble"))
_LEAST: Final = 1.5


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: from ``bottom`` on, ``height`` high, both percent of the axis."""

    tone: str
    bottom: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One slot. ``title`` says it in words."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through the slots that have a value: runs of (slot, height) without a gap."""

    tone: str
    runs: tuple[tuple[tuple[int, float], ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """``top`` is what 100 percent is; ``key`` names the tones; ``rows`` are the numbers behind it, for a table."""

    slots: int
    top: str
    middle: str
    key: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...] = ()
    lines: tuple[Line, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    empty: bool = False


def axis_top(highest: float) -> float:
    """The least round number (1, 2, 2.5, 5 times a power of ten) that is not below; 1 for nothing to speak of."""
    if highest < _SMALLEST:
        return 1.0
    power = 1.0
    while power * 10 < highest:
        power *= 10
    while power > highest:
        power /= 10
    return next(power * step for step in _STEPS if power * step >= highest * (1 - 1e-9))


def volume_chart(rows: Iterable[Mapping[str, Any]], slots: int, slot_seconds: int) -> Chart:
    """Deliveries by slot, stacked by how good their outcomes are."""
    sums = [dict.fromkeys((name for name, _ in _GROUPS), 0) for _ in range(slots)]
    for row in rows:
        group = tone(row["outcome"])
        sums[_slot(row["slot"], slots)][group if group in sums[0] else "quiet"] += row["items"]
    return _stacked(sums, _GROUPS, [_when(place, slots, slot_seconds) for place in range(slots)])


def tokens_chart(rows: Iterable[Mapping[str, Any]], days: int, today: date) -> Chart:
    """Tokens by day, stacked by the model's tier."""
    tiers = (("good", "standard"), ("live", "fast"))
    names = {name: colour for colour, name in tiers}
    sums = [dict.fromkeys((colour for colour, _ in tiers), 0) for _ in range(days)]
    for row in rows:
        sums[_slot(row["days_ago"], days)][names.get(row["tier"], "live")] += row["tokens"]
    labels = [date.fromordinal(today.toordinal() - (days - 1 - place)).strftime("%d %b") for place in range(days)]
    return _stacked(sums, tiers, labels)


def latency_chart(rows: Iterable[Mapping[str, Any]], slots: int, slot_seconds: int) -> Chart:
    """Half of them, and 95 of 100, took no longer than the lines."""
    key = (("live", "half of them"), ("warn", "95 of 100"))
    found: list[Sequence[float] | None] = [None] * slots
    for row in rows:
        found[_slot(row["slot"], slots)] = row["seconds"]
    top = axis_top(max((values[1] for values in found if values is not None), default=0.0))
    lines = tuple(
        Line(colour, _runs([None if values is None else 100 * values[number] / top for values in found]))
        for number, (colour, _) in enumerate(key)
    )
    table = tuple(
        (_when(place, slots, slot_seconds), duration(values[0]), duration(values[1]))
        for place, values in enumerate(found)
        if values is not None
    )
    return Chart(slots, duration(top), duration(top / 2), key, lines=lines, rows=table, empty=not table)


def outcome_shares(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, float]]:
    """Every outcome with how many there were, and its percent of the most frequent one; most frequent first."""
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["outcome"]] = sums.get(row["outcome"], 0) + row["items"]
    most = max(sums.values(), default=0)
    return [
        (name, items, max(_LEAST, 100 * items / most)) for name, items in sorted(sums.items(), key=lambda s: (-s[1], s))
    ]


def _stacked(sums: Sequence[Mapping[str, int]], key: tuple[tuple[str, str], ...], labels: Sequence[str]) -> Chart:
    top = axis_top(max((sum(slot.values()) for slot in sums), default=0))
    bars, table = [], []
    for slot, label in zip(sums, labels, strict=True):
        parts, bottom = [], 0.0
        for colour, _ in key:
            if slot[colour]:
                height = max(_LEAST, 100 * slot[colour] / top)
                parts.append(Part(colour, bottom, min(height, 100 - bottom)))
                bottom = min(bottom + height, 100)
        said = ", ".join(f"{slot[colour]:,} {name}" for colour, name in key if slot[colour]) or "nothing"
        bars.append(Bar(f"{label}: {said}", tuple(parts)))
        if parts:
            table.append((label, *(f"{slot[colour]:,}" for colour, _ in key)))
    return Chart(
        len(sums), short_number(round(top)), _half(top), key, bars=tuple(bars), rows=tuple(table), empty=not table
    )


def _half(top: float) -> str:
    return short_number(round(top / 2)) if top >= 2 else ""


def _runs(heights: Sequence[float | None]) -> tuple[tuple[tuple[int, float], ...], ...]:
    runs: list[list[tuple[int, float]]] = [[]]
    for place, height in enumerate(heights):
        if height is None:
            runs.append([])
        else:
            runs[-1].append((place, round(height, 2)))
    return tuple(tuple(run) for run in runs if run)


def _slot(ago: int, slots: int) -> int:
    """The place of what is so many slots ago, oldest first."""
    return slots - 1 - min(max(ago, 0), slots - 1)


def _when(place: int, slots: int, slot_seconds: int) -> str:
    ago = slots - place
    begin, end = duration(float(ago * slot_seconds)), duration(float((ago - 1) * slot_seconds))
    return f"{begin} to {end} ago" if ago > 1 else f"the last {begin}"
