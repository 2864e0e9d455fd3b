"""A day of deliveries by the hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from room_admin.domain.words import tone

HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour. The heights are percent of the busiest hour's items."""

    ago: int
    items: int
    matched: int
    height: float
    matched_height: float


@dataclass(frozen=True, slots=True)
class Volume:
    """24 hours, oldest first, and the whole day by outcome, most frequent first."""

    hours: Sequence[Hour]
    outcomes: Sequence[tuple[str, int]]
    total: int
    trouble: int
    busiest: int


def hours(rows: Iterable[Mapping[str, Any]]) -> Volume:
    """From rows of slot (0: the last hour), outcome and items. ``trouble`` counts outcomes that want a person."""
    items: Counter[int] = Counter()
    matched: Counter[int] = Counter()
    outcomes: Counter[str] = Counter()
    for row in rows:
        hour = min(max(row["slot"], 0), HOURS - 1)
        items[hour] += row["items"]
        outcomes[row["outcome"]] += row["items"]
        if row["outcome"] == "matched":
            matched[hour] += row["items"]
    busiest = max(items.values(), default=0)
    drawn = tuple(
        Hour(ago, items[ago], matched[ago], _height(items[ago], busiest), _height(matched[ago], busiest))
        for ago in reversed(range(HOURS))
    )
    trouble = sum(count for outcome, count in outcomes.items() if tone(outcome) == "bad")
    return Volume(drawn, tuple(outcomes.most_common()), outcomes.total(), trouble, busiest)


def _height(items: int, busiest: int) -> float:
    """Of those that are not zero none is too small to be seen."""
    return 0.0 if not items else max(2.0, round(100 * items / busiest, 1))
