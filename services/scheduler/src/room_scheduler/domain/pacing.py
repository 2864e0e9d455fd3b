"""Spreading the ticks of many due rooms over a part of the interval."""

from __future__ import annotations

import math


def pause_between_pages(interval: float, spread: float, page: int, expected: int) -> float:
    """Seconds to wait between two pages, so that ``expected`` rooms take ``spread`` of the interval.

    One page goes out at once: a room is not made to wait where there is nothing to spread.
    """
    pages = math.ceil(expected / page)
    return interval * spread / pages if pages > 1 else 0.0
