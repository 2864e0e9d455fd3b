"""The compactor as a process: once a day, seen in its metrics."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from datetime import date, timedelta

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from room_common.identity import new_id
from room_local.parts.processes import wait_until
from room_testing.activity_log import ActivityLog
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

NO_KAFKA = "127.0.0.1:1"
"""The daily work does not need it."""


def scrape(service: ServiceProcess) -> dict[str, float]:
    """Samples by name and label values."""
    url = f"http://127.0.0.1:{service.operations_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        ",".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("room_compactor_")
    }


def finished(log: ActivityLog) -> bool:
    return len(log.query("select 1 from job_runs where finished_at is not null")) == 3


async def until(condition: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(wait_until, condition, timeout=30)


def put_daily(log: ActivityLog, number: int) -> None:
    day = log.query("select (now() at time zone 'UTC')::date as day")[0]["day"]
    assert isinstance(day, date)
    ids = [new_id()]
    log.instances(ids)
    for _ in range(number):
        log.query(
            "insert into room_activity_log (id, instance_id, log_date, kind, content) values (%s, %s, %s, 'x', '')",
            new_id(), ids[0], day - timedelta(days=8),
        )  # fmt: skip


async def test_it_works_once_a_day_and_says_so(
    log: ActivityLog, database_dsn: str, start_service: StartService
) -> None:
    environment = {
        "ROOM_DATABASE__DSN": database_dsn,
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": NO_KAFKA,
        "ROOM_COMPACTOR__CHECK_SECONDS": "0.2",
    }
    put_daily(log, 5)
    first = start_service("room_compactor", environment)
    await until(lambda: finished(log))
    await until(lambda: scrape(first)["room_compactor_runs_total,succeeded"] == 1)
    samples = scrape(first)
    assert samples["room_compactor_rows_total,daily"] == 5
    assert samples["room_compactor_rows_total,weekly"] == 0
    assert samples["room_compactor_runs_total,failed"] == 0
    assert samples["room_compactor_run_duration_seconds_count"] == 1
    (done,) = log.query("select min(extract(epoch from finished_at)) as at from job_runs")
    assert samples["room_compactor_success_timestamp_seconds"] == pytest.approx(float(str(done["at"])), abs=0.01)

    # What comes up later today waits for tomorrow, whoever starts; partitions are looked at by each start.
    put_daily(log, 3)
    second = start_service("room_compactor", environment)
    await until(lambda: scrape(second)["room_compactor_runs_total,succeeded"] == 1)
    assert scrape(second)["room_compactor_rows_total,daily"] == 0
    assert scrape(second)["room_compactor_success_timestamp_seconds"] > 0
    assert scrape(first)["room_compactor_runs_total,succeeded"] == 1

    # The next day.
    log.query("update job_runs set day = day - 1")
    await until(lambda: not log.query("select 1 from room_activity_log where log_type = 'daily'"))
    await until(lambda: scrape(first)["room_compactor_runs_total,succeeded"] == 2)


async def test_a_run_with_a_failure_is_not_done_and_is_tried_again(
    log: ActivityLog, database_dsn: str, start_service: StartService
) -> None:
    put_daily(log, 2)
    put_daily(log, 1)
    log.query(
        "update room_activity_log set counts = '7', content = 'secret'"
        " where id = (select max(id::text)::uuid from room_activity_log)"
    )
    environment = {
        "ROOM_DATABASE__DSN": database_dsn,
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": NO_KAFKA,
        "ROOM_COMPACTOR__CHECK_SECONDS": "0.2",
        "ROOM_COMPACTOR__RETRY_SECONDS": "0.5",
    }
    service = start_service("room_compactor", environment)
    await until(lambda: scrape(service)["room_compactor_runs_total,failed"] >= 2)
    assert [row["job"] for row in log.query("select job from job_runs where finished_at is null")] == ["aging"]
    assert scrape(service)["room_compactor_success_timestamp_seconds"] == 0
    assert scrape(service)["room_compactor_rows_total,daily"] == 2
    assert "secret" not in service.output()
    log.query("""update room_activity_log set counts = '{}' where counts = '7'""")
    await until(lambda: finished(log))


async def test_a_partition_in_use_holds_up_nothing_else(
    log: ActivityLog, database_dsn: str, start_service: StartService
) -> None:
    put_daily(log, 4)
    newest = log.query(
        "select max(inhrelid::regclass::text) as name from pg_inherits"
        " where inhparent = 'webhook_deliveries'::regclass and inhrelid::regclass::text not like '%%default'"
    )[0]["name"]
    log.query(f"drop table {newest}")
    with psycopg.connect(database_dsn) as other:
        other.execute("select 1 from webhook_deliveries")
        environment = {
            "ROOM_DATABASE__DSN": database_dsn,
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": NO_KAFKA,
            "ROOM_COMPACTOR__CHECK_SECONDS": "0.2",
        }
        service = start_service("room_compactor", environment)
        # The ledger's partitions can't be made, and nothing else waits for them.
        await until(lambda: scrape(service)["room_compactor_runs_total,failed"] >= 1)
        done = {row["job"] for row in log.query("select job from job_runs where finished_at is not null")}
        assert done == {"aging", "retention"}
    await until(lambda: finished(log))
    assert log.query("select 1 where to_regclass(%s) is not null", newest)
