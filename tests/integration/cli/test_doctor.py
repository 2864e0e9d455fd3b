"""``room doctor`` on real parts, each of them broken once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from room_cli.__main__ import app
from room_cli.doctor.checks import Doctor
from room_cli.doctor.findings import REPORTING, Finding
from room_common.contracts.topics import TOPICS
from room_common.postgres import service_state
from room_common.postgres.service_state import ProcessState
from room_common.telemetry.metrics import room_version
from room_testing.administering import opened, room_document
from room_testing.rehearsal import RehearsalModel

pytestmark = pytest.mark.integration

KEYS = {"ROOM_ENCRYPTION__KEYS": f"k1:{'01' * 32}", "ROOM_TOKEN_KEYS": f"t1:{'02' * 32}"}


def _examined(environ: Mapping[str, str], **options: Any) -> dict[str, Finding]:
    found = asyncio.run(Doctor(environ, **options).examine())
    return {finding.check: finding for finding in found}


def _run(folder: Path, *words: str, code: int, **environ: str) -> Any:
    result = CliRunner().invoke(app, ["doctor", *words, "-C", str(folder)], env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def dsn(postgres_dsn: str) -> str:
    """A database with a room, and a report of every service."""

    async def fill() -> None:
        async with opened(postgres_dsn) as world:
            await world.apply(room_document())
            database: Any = world.app.state.database
            async with database.transaction() as conn:
                for service in REPORTING:
                    await service_state.save(conn, ProcessState(service, f"{service}-1", room_version()))

    asyncio.run(fill())
    return postgres_dsn


def _kafka(bootstrap: str, idempotence: bool) -> dict[str, str]:
    return {
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "ROOM_KAFKA__REPLICATION_FACTOR": "1",
        "ROOM_KAFKA__MIN_INSYNC_REPLICAS": "1",
        "ROOM_KAFKA__IDEMPOTENCE": str(idempotence).lower(),
    }


def test_a_database_that_is_well(dsn: str) -> None:
    found = _examined({"ROOM_DATABASE__DSN": dsn, **KEYS})
    checks = (
        "postgresql",
        "clock",
        "schema",
        "encryption keys",
        "overflow",
        *(f"service {name}" for name in REPORTING),
    )
    assert {check: found[check].state for check in checks} == dict.fromkeys(checks, "ok")
    assert {found[name].state for name in ("ingest", "kafka", "redis", "model")} == {"skipped"}


def test_a_clock_that_is_wrong(dsn: str) -> None:
    found = _examined({"ROOM_DATABASE__DSN": dsn, **KEYS}, wall=lambda: 0.0)
    assert found["clock"].state == "problem" and "behind the database" in found["clock"].said


def test_keys_that_are_wrong(dsn: str) -> None:
    changed = KEYS | {"ROOM_ENCRYPTION__KEYS": f"k2:{'01' * 32}"}
    found = _examined({"ROOM_DATABASE__DSN": dsn, **changed})
    assert "'k1', which is not there" in found["encryption keys"].said
    foreign = KEYS | {"ROOM_TOKEN_KEYS": f"t1:{'05' * 32}"}
    assert _examined({"ROOM_DATABASE__DSN": dsn, **foreign})["token keys"].state == "problem"
    unreadable = _examined({"ROOM_DATABASE__DSN": dsn, "ROOM_ENCRYPTION__KEYS": "k1:00"})["encryption keys"]
    assert unreadable.state == "problem" and "ROOM_ENCRYPTION__KEYS" in unreadable.said


def test_a_service_that_is_gone(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("update service_state set seen_at = now() - interval '5 minutes' where service = 'matcher'")
        try:
            conn.commit()
            found = _examined({"ROOM_DATABASE__DSN": dsn, **KEYS})
        finally:
            conn.execute("update service_state set seen_at = now()")
            conn.commit()
    assert found["service matcher"].state == "problem"
    assert found["service scheduler"].state == "ok"


def test_a_schema_that_is_missing(empty_database_dsn: str) -> None:
    found = _examined({"ROOM_DATABASE__DSN": empty_database_dsn})
    assert found["schema"].state == "problem" and found["schema"].remedy == "`room migrate` brings it up to date"
    assert "service matcher" not in found


def test_a_broker_and_its_topics(kafka_bootstrap: str, kafka_idempotence: bool, tmp_path: Path) -> None:
    environ = _kafka(kafka_bootstrap, kafka_idempotence)
    CliRunner().invoke(app, ["topics", "--create", "-C", str(tmp_path)], env=environ)
    found = _examined(environ)
    checks = ["kafka", *(f"topic {topic.name}" for topic in TOPICS)]
    assert {check: found[check].state for check in checks} == dict.fromkeys(checks, "ok")
    more = _examined(environ | {"ROOM_KAFKA__REPLICATION_FACTOR": "3"})
    assert {more[f"topic {topic.name}"].state for topic in TOPICS} == {"problem"}


def test_a_cache(redis_url: str) -> None:
    assert _examined({"ROOM_REDIS__URL": redis_url})["redis"].state == "ok"
    assert _examined({"ROOM_REDIS__URL": "redis://127.0.0.1:1"})["redis"].state == "warning"


def test_a_model(tmp_path: Path) -> None:
    model = RehearsalModel(tmp_path)
    model.start()
    try:
        environ = {"ROOM_LLM__BASE_URL": model.url, "ROOM_LLM__API_KEY": "rehearsal"}
        found = _examined(environ)
        assert (found["model fast"].state, found["model standard"].state) == ("ok", "ok")
        assert _examined(environ, ask_model=False)["model"].said == "not asked: --no-model"
        asyncio.run(model.faults({"kind": "unauthorized", "times": None}))
        refused = _examined(environ)["model fast"]
        assert refused.state == "problem" and "ROOM_LLM__API_KEY" in (refused.remedy or "")
    finally:
        model.stop()
    away = _examined(environ)["model fast"]
    assert away.state == "problem" and "ROOM_LLM__BASE_URL" in (away.remedy or "")


def test_everything_is_away(tmp_path: Path) -> None:
    environ = {
        "ROOM_DATABASE__DSN": "postgresql://room:s3cr3t@127.0.0.1:1/room",
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "ROOM_PUBLIC_URL": "http://127.0.0.1:1",
    }
    answer = json.loads(_run(tmp_path, "--json", code=1, **environ).stdout)
    found = {one["check"]: one for one in answer["findings"]}
    assert {name for name, one in found.items() if one["state"] == "problem"} == {"postgresql", "kafka", "ingest"}
    assert answer["problems"] == 3 and all(one["remedy"] for one in answer["findings"])
    shown = _run(tmp_path, code=1, **environ)
    assert "3 problems, 0 warnings" in shown.stdout
    assert "s3cr3t" not in shown.output


def test_a_wrong_setting_is_a_problem_and_nothing_at_all_is_exit_3(tmp_path: Path) -> None:
    wrong = _run(tmp_path, code=1, ROOM_KAFKA__BOOTSTRAP_SERVERS="nowhere")
    assert "ROOM_KAFKA__BOOTSTRAP_SERVERS" in wrong.stdout
    assert "nothing can be looked at" in _run(tmp_path, code=3).stderr
