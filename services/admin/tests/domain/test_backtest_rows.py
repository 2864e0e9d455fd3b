"""Which verdicts change."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

import pytest

from room_admin.domain.backtest import Compared, Said, said_before, summary

DEFINITION = UUID(int=5)


def row(before: Said | None, after: Said | None, **more: Any) -> Compared:
    return Compared(UUID(int=1), 0, None, "no_match", None, before, after, **more)


@pytest.mark.parametrize("before", [None, *get_args(Said)])
@pytest.mark.parametrize("after", [None, *get_args(Said)])
def test_a_change_is_between_matching_and_not(before: Said | None, after: Said | None) -> None:
    assert row(before, after).changed is (after is not None and (before == "yes") != (after == "yes"))


def test_what_was_said_is_read_from_the_ledger() -> None:
    verdicts: list[dict[str, Any]] = [
        {"definition_id": str(UUID(int=4)), "verdict": "no"},
        {"definition_id": str(DEFINITION), "verdict": "unclear"},
    ]
    assert said_before(verdicts, DEFINITION) == "unclear"
    assert said_before(verdicts, UUID(int=6)) is None
    assert said_before(verdicts, None) is None
    assert said_before([{"definition_id": str(DEFINITION), "verdict": "perhaps"}, {}], DEFINITION) is None


def test_the_summary_counts_each_row_once() -> None:
    rows = [
        row("no", "yes", input_tokens=10, output_tokens=1, cached_tokens=4),
        row("yes", "yes", input_tokens=10, output_tokens=1),
        row("yes", None, error="gone"),
        row(None, None, error="undecodable"),
        row(None, None, error="context_length"),
    ]
    counts = summary(rows)
    assert (counts.tested, counts.changed, counts.unreadable, counts.failed) == (2, 1, 2, 1)
    assert (counts.input_tokens, counts.output_tokens, counts.cached_tokens) == (20, 2, 4)
