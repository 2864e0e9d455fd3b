"""When rows of the activity log are old enough to be summed up (behaviour, activity log).

Age is counted in whole days of UTC, or calendar months for monthly rows, and a limit is inclusive: a daily row of seven
days is still a daily row.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

DAILY_DAYS: Final = 7
WEEKLY_DAYS: Final = 28
MONTHLY_MONTHS: Final = 12
DIGEST_ENTRIES: Final = 50
"""Entries that the digest of a weekly or monthly row has at most."""
SHOWN_ENTRIES: Final = 5
"""Entries that the text of such a row shows."""
ENTRY_CHARACTERS: Final = 200
"""Characters of a row's text that its entry in a digest keeps."""


@dataclass(frozen=True, slots=True)
class AgingLimits:
    """Daily and weekly rows dated before their limit go into the next longer period, monthly ones go away."""

    daily_before: date
    weekly_before: date
    monthly_before: date


def aging_limits(today: date) -> AgingLimits:
    """The limits that hold on ``today``, a day in UTC."""
    months = today.year * 12 + today.month - 1 - MONTHLY_MONTHS
    return AgingLimits(
        daily_before=today - timedelta(days=DAILY_DAYS),
        weekly_before=today - timedelta(days=WEEKLY_DAYS),
        monthly_before=date(months // 12, months % 12 + 1, 1),
    )


def week_of(day: date) -> date:
    """The Monday of the ISO week of ``day``."""
    return day - timedelta(days=day.weekday())


def month_of(day: date) -> date:
    """The first day of the month of ``day``; a week is in the month of its Monday."""
    return day.replace(day=1)
