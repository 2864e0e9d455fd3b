"""``room compact`` on a real database."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from room_cli.__main__ import app
from room_common.identity import new_id
from room_testing.activity_log import ActivityLog

pytestmark = pytest.mark.integration


def run(dsn: str, folder: Path, *words: str, code: int = 0) -> Result:
    environ = {"ROOM_DATABASE__DSN": dsn}
    result = CliRunner().invoke(app, ["compact", "-C", str(folder), *words], env=environ)
    assert result.exit_code == code, result.output
    return result


def fill(dsn: str) -> ActivityLog:
    log = ActivityLog(dsn)
    instance = new_id()
    log.instances([instance])
    today = log.query("select (now() at time zone 'UTC')::date as day")[0]["day"]
    assert isinstance(today, date)
    for days in (0, 7, 8, 60, 61, 500):
        log.query(
            "insert into room_activity_log (id, instance_id, log_date, kind, content, counts)"
            """ values (%s, %s, %s, 'x', 'text', '{"x": 1}')""",
            new_id(), instance, today - timedelta(days=days),
        )  # fmt: skip
    log.query("insert into webhook_dedup values (%s, 'x', 'x', %s, 0, now() - interval '1 hour')", new_id(), new_id())
    return log


def test_a_dry_run_counts_and_changes_nothing(database_dsn: str, tmp_path: Path) -> None:
    log = fill(database_dsn)
    before = log.rows()
    said = json.loads(run(database_dsn, tmp_path, "--dry-run", "--json").output)
    assert (said["dry_run"], said["failures"]) == (True, 0)
    assert {kind: rows for kind, rows in said["rows"].items() if rows} == {"daily": 4, "dedup_keys": 1}
    assert "nothing was changed" in run(database_dsn, tmp_path, "--dry-run").output
    assert log.rows() == before
    assert log.query("select 1 from webhook_dedup")


def test_a_run_does_it_and_a_second_one_finds_nothing(database_dsn: str, tmp_path: Path) -> None:
    log = fill(database_dsn)
    said = run(database_dsn, tmp_path).output
    assert "daily activity, into weeks" in said
    assert {row.log_type for row in log.rows()} == {"daily", "weekly", "monthly"}
    assert len([row for row in log.rows() if row.log_type == "daily"]) == 2
    assert not log.query("select 1 from webhook_dedup")
    assert "nothing is due" in run(database_dsn, tmp_path).output
    assert "nothing is due" in run(database_dsn, tmp_path, "--dry-run").output


def test_a_database_without_the_schema_is_said_to_be_one(empty_database_dsn: str, tmp_path: Path) -> None:
    result = run(empty_database_dsn, tmp_path, "--dry-run", code=3)
    assert "waiting for migration" in result.output


def test_what_can_t_be_aged_is_said(database_dsn: str, tmp_path: Path) -> None:
    log = fill(database_dsn)
    log.query("update room_activity_log set counts = '7' where log_date < current_date - 400")
    assert "1 could not be worked on" in run(database_dsn, tmp_path, code=1).output
