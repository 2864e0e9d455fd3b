"""docs/retention.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from room_common.domain import aging
from room_common.postgres import partitions, retention
from room_common.postgres.upkeep import KINDS

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "retention.md").read_text()


def row_of(kind: str) -> str:
    return next(line for line in DOCUMENT.splitlines() if line.startswith("| ") and f"`{kind}`" in line)


def test_every_kind_is_in_it_and_no_other() -> None:
    tables = "\n".join(line for line in DOCUMENT.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([a-z_]+)` ?[|,]", tables)) | {"partitions_made"}
    assert "(`partitions_made`)" in DOCUMENT
    assert named - {"kind", "room_compactor_rows_total"} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "time"),
    [
        ("deliveries", f"older than {partitions.KEPT_DAYS} days"),
        ("cycles", f"{retention.WORK_DAYS} days"),
        ("messages", f"{retention.WORK_DAYS} days"),
        ("events", f"{retention.INPUT_DAYS} days"),
        ("replies", f"{retention.INPUT_DAYS} days"),
        ("token_usage", f"{retention.USAGE_DAYS} days"),
        ("tokens", f"{retention.PURGE_DAYS} days"),
        ("definitions", f"{retention.PURGE_DAYS} days"),
        ("sources", f"{retention.PURGE_DAYS} days"),
        ("instances", f"{retention.PURGE_DAYS} days"),
        ("processes", f"{retention.STATE_HOURS} hours"),
        ("job_runs", f"{retention.RUNS_DAYS} days"),
        ("daily", f"{aging.DAILY_DAYS} days"),
        ("weekly", f"{aging.WEEKLY_DAYS} days"),
        ("monthly", f"{aging.MONTHLY_MONTHS} before"),
    ],
)
def test_times_are_those_of_the_code(kind: str, time: str) -> None:
    assert time in row_of(kind)


def test_the_digest_is_as_said() -> None:
    assert f"the first {aging.DIGEST_ENTRIES} entries" in DOCUMENT
    assert f"cut after {aging.ENTRY_CHARACTERS} characters" in DOCUMENT
