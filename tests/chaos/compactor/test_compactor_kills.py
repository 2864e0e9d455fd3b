"""Compactors killed in the middle of their work: whoever goes on ends where nobody would have been killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import pytest

from room_common.identity import new_id
from room_local.parts.processes import wait_until
from room_testing.activity_log import ActivityLog, in_order
from room_testing.aging_model import SEVERITIES, Row, age
from room_testing.plugin import StartService

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]


@pytest.fixture
def log(database_dsn: str) -> ActivityLog:
    return ActivityLog(database_dsn)


@pytest.fixture
def environment(database_dsn: str) -> Mapping[str, str]:
    return {
        "ROOM_DATABASE__DSN": database_dsn,
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "ROOM_COMPACTOR__CHECK_SECONDS": "0.2",
        "ROOM_COMPACTOR__RETRY_SECONDS": "0.5",
        "ROOM_COMPACTOR__BATCH_INSTANCES": "3",
        "ROOM_COMPACTOR__BATCH_DAILY_ROWS": "20",
        "ROOM_COMPACTOR__BATCH_ROWS": "5",
        "ROOM_COMPACTOR__PAUSE_SECONDS": "0.01",
    }


def today(log: ActivityLog) -> date:
    day = log.query("select (now() at time zone 'UTC')::date as day")[0]["day"]
    assert isinstance(day, date)
    return day


def fill(log: ActivityLog) -> list[Row]:
    """Activity of twelve rooms over 14 months, and old rows of other tables."""
    chance = random.Random(11)
    instances = [new_id() for _ in range(12)]
    log.instances(instances)
    first = today(log)
    rows = []
    for number in range(600):
        day = first - timedelta(days=chance.choice([chance.randrange(440), chance.randrange(30)]))
        kind = chance.choice(["event_matched", "error"])
        rows.append(
            Row(
                id=UUID(int=number + 1),
                instance_id=chance.choice(instances),
                log_date=day,
                log_type="daily",
                kind=kind,
                severity=chance.choice(SEVERITIES),
                content=f"something {number}",
                counts={kind: 1},
                event_count=1,
                occurred_at=datetime.combine(day, time(number % 24), UTC),
            )
        )
    log.put(rows)
    for number in range(30):
        log.query(
            "insert into webhook_dedup values (%s, %s, 'x', %s, 0, now() - interval '1 hour')",
            instances[0], str(number), new_id(),
        )  # fmt: skip
    deleted = new_id()
    log.instances([deleted])
    log.query("update instances set deleted_at = now() - interval '31 days' where id = %s", deleted)
    for number in range(12):
        log.query(
            "insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, received_at)"
            " values (%s, %s, 'local', 'me', '', %s, now())",
            new_id(), deleted, str(number),
        )  # fmt: skip
    name = f"webhook_deliveries_{first - timedelta(days=9):%Y%m%d}"
    log.query(
        f"create table {name} partition of webhook_deliveries"
        f" for values from ('{first - timedelta(days=9)} 00:00+00') to ('{first - timedelta(days=8)} 00:00+00')"
    )
    return rows


def finished(log: ActivityLog) -> bool:
    found = log.query("select job from job_runs where finished_at is not null")
    return {row["job"] for row in found} == {"partitions", "aging", "retention"}


def check(log: ActivityLog, rows: list[Row]) -> None:
    assert log.rows() == in_order(age(rows, today(log)))
    assert not log.query("select 1 from webhook_dedup")
    assert not log.query("select 1 from instances where deleted_at is not null")
    assert len(log.query("select 1 from instances")) == 12
    assert not log.query(
        "select 1 where to_regclass(%s) is not null", f"webhook_deliveries_{today(log) - timedelta(days=9):%Y%m%d}"
    )


@pytest.mark.parametrize(
    "point",
    [
        "compactor.after_drop",
        "compactor.before_commit",
        "compactor.before_commit:4",
        "compactor.after_commit:2",
        "compactor.before_delete_commit:2",
        "compactor.before_purge_commit:2",
        "compactor.before_finish",
        "compactor.before_finish:3",
    ],
)
async def test_killed_at(
    log: ActivityLog, environment: Mapping[str, str], start_service: StartService, point: str
) -> None:
    rows = fill(log)
    victim = start_service("room_compactor", environment, crash=point, wait=False)
    assert await asyncio.to_thread(victim.wait_exit) == -9
    assert not finished(log)
    start_service("room_compactor", environment)
    assert await asyncio.to_thread(wait_until, lambda: finished(log), timeout=60)
    check(log, rows)


async def test_a_survivor_takes_over_from_one_that_is_killed(
    log: ActivityLog, environment: Mapping[str, str], start_service: StartService
) -> None:
    rows = fill(log)
    victim = start_service("room_compactor", environment, crash="compactor.before_commit:3", wait=False)
    others = [start_service("room_compactor", environment, wait=False) for _ in range(2)]
    assert await asyncio.to_thread(wait_until, lambda: finished(log), timeout=60)
    assert all(other.exit_code is None for other in others)
    assert victim.exit_code in (None, -9)
    check(log, rows)


async def test_sigterm_between_batches_is_a_clean_end(
    log: ActivityLog, environment: Mapping[str, str], start_service: StartService
) -> None:
    rows = fill(log)
    slow = start_service("room_compactor", {**environment, "ROOM_COMPACTOR__PAUSE_SECONDS": "5"})
    assert await asyncio.to_thread(
        wait_until, lambda: bool(log.query("select 1 from room_activity_log where log_type = 'monthly'")), timeout=30
    )
    slow.terminate()
    assert await asyncio.to_thread(slow.wait_exit) == 0
    assert not finished(log)
    start_service("room_compactor", environment)
    assert await asyncio.to_thread(wait_until, lambda: finished(log), timeout=60)
    check(log, rows)
