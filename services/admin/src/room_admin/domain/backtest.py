"""What a changed definition would have said of stored deliveries, beside what was said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

Said = Literal["yes", "no", "unclear"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One item. ``before``: what the definition said when it came in, None if it was not asked then.

    ``after`` is None where the question could not be answered: ``error`` says why. ``why`` is the answer's beginning.
    """

    delivery_id: UUID | None
    item: int
    received_at: datetime | None
    outcome: str | None
    matched_by: str | None
    before: Said | None
    after: Said | None
    why: str | None = None
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    ms: int = 0

    @property
    def changed(self) -> bool:
        """Whether it would match now and did not, or the other way round; never told without an answer."""
        return self.after is not None and (self.before == "yes") != (self.after == "yes")


@dataclass(frozen=True, slots=True)
class Summary:
    """All of a test in numbers. ``unreadable`` and ``failed`` items have no answer."""

    tested: int
    changed: int
    unreadable: int
    failed: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int


GONE = "gone"
UNDECODABLE = "undecodable"


def said_before(verdicts: Sequence[Mapping[str, Any]], definition_id: UUID | None) -> Said | None:
    """What the ledger has of a definition's verdict."""
    if definition_id is None:
        return None
    for verdict in verdicts:
        if verdict.get("definition_id") == str(definition_id) and verdict.get("verdict") in ("yes", "no", "unclear"):
            said: Said = verdict["verdict"]
            return said
    return None


def summary(results: Iterable[Compared]) -> Summary:
    """Count."""
    rows = list(results)
    unreadable = sum(row.error in (GONE, UNDECODABLE) for row in rows)
    return Summary(
        tested=sum(row.after is not None for row in rows),
        changed=sum(row.changed for row in rows),
        unreadable=unreadable,
        failed=sum(row.error is not None for row in rows) - unreadable,
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cached_tokens=sum(row.cached_tokens for row in rows),
    )
