"""Aging in PostgreSQL is the pure rule of aging: whenever it runs, however often, and however many do it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from room_common.identity import new_id
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_common.postgres.upkeep import Pace, Upkeep
from room_testing.activity_log import ActivityLog, in_order
from room_testing.aging_model import SEVERITIES, Row, age

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TODAY = date(2026, 11, 30)
TINY = Pace(instances=2, daily_rows=3, rows=2, pause_seconds=0)
QUICK = Pace(pause_seconds=0)
ONE_LOG = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


async def go_on(_: float) -> bool:
    await asyncio.sleep(0)
    return True


def upkeep(database: Database, pace: Pace = QUICK) -> Upkeep:
    return Upkeep(database, pace, pause=go_on, counted=lambda kind, rows: None)


def daily(instance: UUID, days: int, severity: int, kind: str, content: str, number: int) -> Row:
    day = TODAY - timedelta(days=days)
    return Row(
        id=UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128),
        instance_id=instance,
        log_date=day,
        log_type="daily",
        kind=kind,
        severity=SEVERITIES[severity],
        content=content,
        counts={kind: 1 + number % 3, "events_taken": number},
        event_count=1,
        occurred_at=datetime.combine(day, time(number % 24, number % 60, 0, number % 7), UTC),
    )


def some_rows(instances: Sequence[UUID], chance: random.Random, number: int = 400, oldest: int = 480) -> list[Row]:
    return [
        daily(
            chance.choice(instances),
            chance.randrange(oldest),
            chance.randrange(3),
            chance.choice(["event_matched", "cycle_failed"]),
            chance.choice(["short", "é" * 300, 'quotes " and \\ and \n lines']),
            index,
        )
        for index in range(number)
    ]


@pytest.fixture
def instances(log: ActivityLog) -> list[UUID]:
    ids = [new_id() for _ in range(5)]
    log.instances(ids[:3])
    log.instances(ids[3:], enabled=False)
    log.query("update instances set deleted_at = now() where id = %s", ids[4])
    return ids


DRAWN = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 480) | st.integers(0, 40),
        st.integers(0, 2),
        st.sampled_from(["event_matched", "error", 'a"b', "Z", "ä"]),
        st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=20),
    ),
    max_size=80,
)


async def test_it_is_the_pure_rule(database: Database, log: ActivityLog, instances: list[UUID]) -> None:
    async def once(drawn: list[tuple[int, int, int, str, str]], small: bool) -> None:
        rows = [daily(instances[one], *of_one, number) for number, (one, *of_one) in enumerate(drawn)]  # type: ignore[call-arg, arg-type]
        log.clear()
        log.put(rows)
        await upkeep(database, TINY if small else QUICK).age(TODAY)
        assert log.rows() == in_order(age(rows, TODAY))

    loop = asyncio.get_running_loop()

    @ONE_LOG
    @given(DRAWN, st.booleans())
    def check(drawn: list[tuple[int, int, int, str, str]], small: bool) -> None:
        asyncio.run_coroutine_threadsafe(once(drawn, small), loop).result(60)

    await asyncio.to_thread(check)


@pytest.mark.parametrize("seed", [1, 2])
async def test_day_by_day_in_tiny_batches_ends_where_one_late_run_ends(
    database: Database, log: ActivityLog, instances: list[UUID], seed: int
) -> None:
    rows = some_rows(instances, random.Random(seed), 200, 60)
    for ago in range(60, -1, -1):
        day = TODAY - timedelta(days=ago)
        log.put([row for row in rows if row.log_date == day])
        await upkeep(database, TINY).age(day)
    assert log.rows() == in_order(age(rows, TODAY))


@pytest.mark.parametrize("rows_at_once", [7, 40])
async def test_full_digests_are_merged_by_severity_time_and_id(
    database: Database, log: ActivityLog, instances: list[UUID], rows_at_once: int
) -> None:
    chance = random.Random(9)
    rows = []
    for number in range(400):
        # Two weeks and one month of one room; few severities and times, so that the id often decides.
        row = daily(instances[0], chance.choice([10, 12, 40, 41]), min(2, number % 7), "event_matched", "text", number)
        rows.append(replace(row, occurred_at=datetime.combine(row.log_date, time(12, chance.randrange(2)), UTC)))
    log.put(rows)
    await upkeep(database, Pace(instances=1, daily_rows=rows_at_once, pause_seconds=0)).age(TODAY)
    found = log.rows()
    assert found == in_order(age(rows, TODAY))
    assert [len(row.digest) for row in found] == [50, 50]


async def test_a_second_run_takes_nothing(database: Database, log: ActivityLog, instances: list[UUID]) -> None:
    log.put(some_rows(instances, random.Random(3)))
    await upkeep(database).age(TODAY)
    before = log.rows()
    counted: list[int] = []
    again = Upkeep(database, QUICK, pause=go_on, counted=lambda kind, rows: counted.append(rows))
    result = await again.age(TODAY)
    assert (result.done, result.failures, sum(counted)) == (True, 0, 0)
    assert log.rows() == before


async def test_four_workers_at_once_do_what_one_does(
    database: Database, log: ActivityLog, instances: list[UUID]
) -> None:
    more = [new_id() for _ in range(20)]
    log.instances(more)
    rows = some_rows([*instances, *more], random.Random(4), 3000)
    log.put(rows)
    taken = [0, 0, 0, 0]

    def count(worker: int, kind: str, number: int) -> None:
        taken[worker] += number

    pace = Pace(instances=3, daily_rows=40, pause_seconds=0)
    workers = [Upkeep(database, pace, pause=go_on, counted=partial(count, worker)) for worker in range(4)]
    results = await asyncio.gather(*(worker.age(TODAY) for worker in workers))
    assert all(result.done and not result.failures for result in results)
    assert sum(1 for number in taken if number) > 1, "the work was not shared"
    assert log.rows() == in_order(age(rows, TODAY))


async def test_what_another_worker_holds_is_waited_for_and_taken_over(
    database: Database, log: ActivityLog, instances: list[UUID], database_dsn: str
) -> None:
    rows = some_rows(instances, random.Random(5))
    log.put(rows)
    async with await psycopg.AsyncConnection.connect(database_dsn) as other:
        await other.execute("select from instances where id = %s for no key update", (instances[0],))
        waits = asyncio.Event()

        async def pause(seconds: float) -> bool:
            if seconds:
                waits.set()
            await asyncio.sleep(0.01)
            return True

        work = asyncio.create_task(Upkeep(database, QUICK, pause=pause, counted=lambda *_: None).age(TODAY))
        await asyncio.wait_for(waits.wait(), 60)
        assert not work.done()
        assert {row.log_type for row in log.rows() if row.instance_id == instances[0]} == {"daily"}
        await other.rollback()
        assert (await asyncio.wait_for(work, 60)).done
    assert log.rows() == in_order(age(rows, TODAY))


async def test_a_bad_row_keeps_only_its_own_instance_young(
    database: Database, log: ActivityLog, instances: list[UUID]
) -> None:
    rows = some_rows(instances, random.Random(6))
    log.put(rows)
    log.query(
        "insert into room_activity_log (id, instance_id, log_date, kind, content, counts)"
        " values (%s, %s, %s, 'x', '', '7')",
        new_id(),
        instances[1],
        TODAY - timedelta(days=20),
    )
    result = await upkeep(database).age(TODAY)
    assert (result.done, result.failures) == (True, 1)
    found = [row for row in log.rows() if row.instance_id != instances[1]]
    assert found == in_order(row for row in age(rows, TODAY) if row.instance_id != instances[1])
    log.query("delete from room_activity_log where counts = '7'")
    assert (await upkeep(database).age(TODAY)).failures == 0
    assert log.rows() == in_order(age(rows, TODAY))


async def test_when_everything_fails_it_does_not_go_on_from_one_to_the_next(
    database: Database, log: ActivityLog
) -> None:
    log.query(
        "insert into instances (id, slug, name)"
        " select gen_random_uuid(), 'room-' || n, 'x' from generate_series(1, 105) n"
    )
    log.query(
        "insert into room_activity_log (id, instance_id, log_date, kind, content, counts)"
        " select gen_random_uuid(), id, '2026-11-01', 'x', '', '7' from instances"
    )
    with pytest.raises(psycopg.Error):
        await upkeep(database).age(TODAY)


async def test_told_to_stop_it_stops_between_batches_and_goes_on_later(
    database: Database, log: ActivityLog, instances: list[UUID]
) -> None:
    rows = some_rows(instances, random.Random(7))
    log.put(rows)
    left = [3]

    async def pause(_: float) -> bool:
        left[0] -= 1
        return left[0] > 0

    stopped = await Upkeep(database, TINY, pause=pause, counted=lambda *_: None).age(TODAY)
    assert not stopped.done
    assert log.rows() != in_order(age(rows, TODAY))
    assert (await upkeep(database).age(TODAY)).done
    assert log.rows() == in_order(age(rows, TODAY))


async def test_the_session_s_timezone_does_not_matter(
    log: ActivityLog, instances: list[UUID], database_dsn: str
) -> None:
    rows = some_rows(instances, random.Random(8))
    log.put(rows)
    dsn = psycopg.conninfo.make_conninfo(database_dsn, options="-c timezone=Pacific/Kiritimati -c datestyle=SQL,DMY")
    far = Database(DatabaseSettings(dsn=SecretStr(dsn)))
    await far.start()
    try:
        await upkeep(far).age(TODAY)
    finally:
        await far.stop()
    assert log.rows() == in_order(age(rows, TODAY))
