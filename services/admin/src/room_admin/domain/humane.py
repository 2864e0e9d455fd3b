"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_STEPS: Final = ((60, "s", 1), (3600, "min", 60), (86400, "h", 3600), (float("inf"), "d", 86400))


def number(value: float | None) -> str:
    """``12,345``; nothing is a dash."""
    return "–" if value is None else f"{value:,}"


def short_number(value: int) -> str:
    """At most four characters up to billions: ``980``, ``12.3k``, ``5M``."""
    size = float(value)
    for unit in ("", "k", "M"):
        if abs(size) < 999.5:
            return f"{size:.3g}{unit}"
        size /= 1000
    return f"{size:,.3g}G" if abs(size) < 999.5 else f"{size:,.0f}G"


def size(value: int | None) -> str:
    """Bytes: ``512 B``, ``1.2 KB``, ``64 KB``."""
    if value is None:
        return "–"
    if value < 1000:
        return f"{value} B"
    return f"{value / 1000:.3g} KB" if value < 999_500 else f"{value / 1_000_000:.3g} MB"


def duration(seconds: float) -> str:
    """A span: ``340 ms``, ``1.2 s``, ``4 min``, ``3 h``, ``2 d``. A negative one is as long as the positive one."""
    seconds = abs(seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, unit, length in _STEPS:
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    raise AssertionError("the last step has no limit")


def ago(at: datetime, now: datetime) -> str:
    """``just now``, ``3 min ago``, ``in 5 min``."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(seconds)}"


def absolute(at: datetime) -> str:
    """To the second, in UTC: what is shown where no script says the local time."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def percent(part: float, whole: float) -> int:
    """0 to 100; a whole of nothing is full."""
    return 100 if whole <= 0 else max(0, min(100, round(100 * part / whole)))
