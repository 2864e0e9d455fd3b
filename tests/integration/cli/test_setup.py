"""``room topics`` and ``room migrate`` on real parts."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from room_cli.__main__ import app
from room_common.contracts.topics import TOPICS

pytestmark = pytest.mark.integration


def _run(folder: Path, *words: str, code: int = 0, **environ: str) -> Result:
    """``environ`` is added to this process's own."""
    result = CliRunner().invoke(app, [*words, "-C", str(folder)], env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def test_topics_are_made_once(tmp_path: Path, kafka_bootstrap: str, kafka_idempotence: bool) -> None:
    environ = {
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
        "ROOM_KAFKA__REPLICATION_FACTOR": "1",
        "ROOM_KAFKA__MIN_INSYNC_REPLICAS": "1",
        "ROOM_KAFKA__IDEMPOTENCE": str(kafka_idempotence).lower(),
    }
    made = json.loads(_run(tmp_path, "topics", "--create", "--json", code=0, **environ).stdout)
    assert [row["topic"] for row in made] == [topic.name for topic in TOPICS]
    assert {row["state"] for row in made} <= {"created", "there"}
    again = json.loads(_run(tmp_path, "topics", "--create", "--json", code=0, **environ).stdout)
    assert {row["state"] for row in again} == {"there"}
    shown = _run(tmp_path, "topics", code=0, **environ).stdout
    assert all(topic.name in shown for topic in TOPICS)


def test_a_broker_that_is_away_is_exit_3(tmp_path: Path) -> None:
    result = _run(tmp_path, "topics", code=3, ROOM_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert "kafka" in result.stderr


def test_settings_that_are_wrong_are_exit_2(tmp_path: Path) -> None:
    assert "ROOM_KAFKA__BOOTSTRAP_SERVERS" in _run(tmp_path, "topics", code=2, ROOM_KAFKA__BOOTSTRAP_SERVERS="").stderr
    assert "ROOM_DATABASE__DSN" in _run(tmp_path, "migrate", code=2, ROOM_DATABASE__DSN="").stderr


def test_migrate_brings_a_database_up_to_date(tmp_path: Path, empty_database_dsn: str) -> None:
    applied = json.loads(_run(tmp_path, "migrate", "--json", ROOM_DATABASE__DSN=empty_database_dsn).stdout)["applied"]
    assert applied and applied[0].startswith("0001")
    again = _run(tmp_path, "migrate", ROOM_DATABASE__DSN=empty_database_dsn)
    assert "the schema is up to date" in again.stdout
    assert json.loads(_run(tmp_path, "migrate", "--json", ROOM_DATABASE__DSN=empty_database_dsn).stdout) == {
        "applied": []
    }


def test_a_database_that_is_away_is_exit_3_and_shows_no_password(tmp_path: Path) -> None:
    dsn = "postgresql://room:s3cr3t@127.0.0.1:1/room?connect_timeout=2"
    result = _run(tmp_path, "migrate", code=3, ROOM_DATABASE__DSN=dsn)
    assert "postgresql" in result.stderr
    assert "s3cr3t" not in result.output


def test_a_database_of_another_release_is_exit_2(tmp_path: Path, empty_database_dsn: str) -> None:
    _run(tmp_path, "migrate", ROOM_DATABASE__DSN=empty_database_dsn)
    with psycopg.connect(empty_database_dsn) as conn:
        conn.execute("update room_schema set checksum = 'another'")
    _run(tmp_path, "migrate", code=2, ROOM_DATABASE__DSN=empty_database_dsn)
