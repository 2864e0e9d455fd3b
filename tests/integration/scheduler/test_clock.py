"""One row decides who emits which tick."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.postgres import clock
from room_common.postgres.clock import Tick
from room_common.postgres.database import Database
from room_scheduler.settings import TickSettings
from room_scheduler.ticker import Ticker
from room_testing.scheduling import Scheduling

pytestmark = pytest.mark.integration


async def win(database: Database, interval: float = 3600.0) -> Tick | None:
    async with database.transaction() as conn:
        return await clock.win_tick(conn, interval)


async def last(rooms_only: Scheduling) -> int:
    (row,) = await rooms_only.query("select seq from scheduler_clock")
    return int(row["seq"])


async def test_one_of_many_wins_each_number(database: Database) -> None:
    """Twelve schedulers race through a hundred tiny intervals."""
    won: Counter[int] = Counter()

    async def compete() -> None:
        for _ in range(25):
            tick = await win(database, 0.05)
            if tick is not None:
                won[tick.seq] += 1
                assert tick.seq == int(tick.now.timestamp() / 0.05)

    await asyncio.gather(*(compete() for _ in range(12)))
    assert len(won) > 1 and set(won.values()) == {1}


async def test_missed_ticks_are_not_made_up(database: Database, rooms_only: Scheduling) -> None:
    await rooms_only.query("update scheduler_clock set seq = floor(extract(epoch from now()) / 3600) - 1000")
    assert await win(database) is not None
    assert await win(database) is None


async def test_a_small_step_back_repeats_no_number_and_a_large_one_does_not_silence_it(
    database: Database, rooms_only: Scheduling
) -> None:
    tick = await win(database)
    assert tick is not None
    await rooms_only.query("update scheduler_clock set seq = %s", tick.seq + 5)
    assert await win(database) is None
    await rooms_only.query("update scheduler_clock set seq = %s", tick.seq + 11)
    again = await win(database)
    assert again is not None and again.seq == tick.seq
    assert await win(database) is None


async def test_another_interval_counts_from_its_own_numbers(database: Database, rooms_only: Scheduling) -> None:
    assert await win(database, 2.0) is not None
    tick = await win(database, 30.0)
    assert tick is not None and tick.seq == await last(rooms_only)
    assert await win(database, 2.0) is not None


async def test_the_wait_ends_at_the_databases_boundary(database: Database) -> None:
    async with database.transaction() as conn:
        wait = await clock.seconds_to_next(conn, 30.0)
        cursor = await conn.execute("select extract(epoch from clock_timestamp())::float8 as now")
        row = await cursor.fetchone()
    assert row is not None and 0 < wait <= 30
    assert abs((row["now"] + wait) / 30 - round((row["now"] + wait) / 30)) < 0.05


class MemoryProducer(Producer):
    """Acknowledges everything, or the first ``limit`` only."""

    def __init__(self, limit: int | None = None) -> None:
        self.pages: list[list[Outgoing]] = []
        self.limit = limit

    async def send_many(self, records, *, timeout=None):  # type: ignore[no-untyped-def]
        from room_common.errors import DependencyUnavailable

        self.pages.append(list(records))
        sent = len(records) if self.limit is None else self.limit
        done = [RecordMetadata(record.topic, 0, 0, 0) for record in records[:sent]]
        return [*done, *(DependencyUnavailable("kafka", "timeout") for _ in records[sent:])]


async def emit(database: Database, producer: Producer, page: int = 4) -> None:
    """One tick, whatever the clock says."""
    settings = TickSettings(tick_seconds=1, page=page)
    ticker = Ticker(database, producer, settings, CollectorRegistry())
    async with asyncio.timeout(30):
        await ticker.start()
        try:
            while True:
                async with database.transaction() as conn:
                    cursor = await conn.execute("select rooms, seq from scheduler_clock")
                    row = await cursor.fetchone()
                if row is not None and row["seq"] and row["rooms"] != -1:
                    return
                await asyncio.sleep(0.05)
        finally:
            await ticker.stop()


async def test_every_due_room_gets_its_tick_page_by_page(database: Database, rooms_only: Scheduling) -> None:
    due = [await rooms_only.room() for _ in range(10)]
    idle = await rooms_only.room()
    for number, room in enumerate(due):
        await (rooms_only.reply(room) if number % 2 else rooms_only.event(room))
    await rooms_only.query("update scheduler_clock set rooms = -1")
    producer = MemoryProducer()
    await emit(database, producer)
    assert [len(page) for page in producer.pages[:3]] == [4, 4, 2]
    keys = {record.key for page in producer.pages[:3] for record in page}
    assert keys == {str(room.instance_id).encode() for room in due}
    assert str(idle.instance_id).encode() not in keys
    (row,) = await rooms_only.query("select rooms from scheduler_clock")
    assert row["rooms"] == 10, "the next tick is paced by it, whoever wins it"


async def test_a_broker_in_trouble_is_not_pressed_further(database: Database, rooms_only: Scheduling) -> None:
    for _ in range(9):
        await rooms_only.event(await rooms_only.room())
    await rooms_only.query("update scheduler_clock set rooms = 7")
    producer = MemoryProducer(limit=2)
    await emit(database, producer)
    assert [len(page) for page in producer.pages] == [4] * len(producer.pages)
    (row,) = await rooms_only.query("select rooms from scheduler_clock")
    assert row["rooms"] == 7
