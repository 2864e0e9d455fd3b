"""Both sides of the overflow table, against a table in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.postgres.overflow import OverflowRecord, OverflowTotal
from room_common.postgres.overflow_connection import Claim, OverflowConnection, OverflowFull
from room_ingest import overflow as module
from room_ingest.domain.request_headers import NO_HEADERS, id_in, keep, record_headers, token_header
from room_ingest.drain import Drain
from room_ingest.metrics import IngestMetrics
from room_ingest.overflow import Overflow
from room_ingest.settings import OverflowSettings
from room_ingest.sink import Parcel
from room_testing.webhook_port import MemorySink, OpenPort, plain_parcel, post


@dataclass
class Table:
    """Stands in for the connection."""

    rows: list[OverflowRecord] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    error: Exception | None = None
    hang: asyncio.Event | None = None
    closed: int = 0
    full: bool = False

    async def add(self, records: Sequence[OverflowRecord], *, max_rows: int, max_bytes: int) -> None:
        await self._trouble()
        if self.full or len(self.rows) + len(records) > max_rows:
            raise OverflowFull
        self.rows += records
        self.commits.append(len(records))

    async def total(self) -> OverflowTotal:
        await self._trouble()
        return OverflowTotal(len(self.rows), sum(row.size for row in self.rows), 1.0 if self.rows else None)

    @asynccontextmanager
    async def claim(self, *, rows: int, bytes: int, seconds: float, after: UUID) -> AsyncIterator[Claim]:
        await self._trouble()
        claim = Claim([row for row in self.rows if row.id > after][:rows])
        yield claim
        self.rows = [row for row in self.rows if row.id not in claim.done]

    async def close(self) -> None:
        self.closed += 1

    async def _trouble(self) -> None:
        await asyncio.sleep(0)
        if self.hang is not None:
            await self.hang.wait()
        if self.error is not None:
            raise self.error

    def connection(self) -> OverflowConnection:
        return cast(OverflowConnection, self)


def parcel(body: bytes = b"x") -> Parcel:
    made = record_headers(
        keep(NO_HEADERS, []),
        token=token_header(b"t" * 32),
        received_at_us=1_700_000_000_000_000,
        randomness=new_id().bytes * 2,
        query=b"",
        too_large=False,
        channel=b"",
    )
    return plain_parcel(made, value=body)


@pytest.fixture
def metrics() -> IngestMetrics:
    return IngestMetrics(CollectorRegistry())


async def writer(table: Table, metrics: IngestMetrics, **settings: float) -> Overflow:
    part = Overflow(table.connection(), OverflowSettings.model_validate(settings), metrics)
    await part.start()
    return part


async def until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def test_all_that_waits_is_one_commit(metrics: IngestMetrics) -> None:
    table = Table()
    part = await writer(table, metrics)
    told: list[bool] = []
    parcels = [parcel(b"%d" % number) for number in range(700)]
    for one in parcels:
        assert part.take("t", one, told.append)
    await until(lambda: len(told) == 700)
    assert told == [True] * 700
    assert table.commits == [500, 200]
    assert [row.value for row in table.rows] == [one.value for one in parcels]
    assert [row.id for row in table.rows] == [id_in(one.headers) for one in parcels]
    assert metrics.overflowed == {"stored": 700, "refused": 0, "drained": 0}
    await part.stop()
    assert table.closed


async def test_a_commit_is_bounded_in_bytes(metrics: IngestMetrics) -> None:
    table = Table()
    part = await writer(table, metrics)
    told: list[bool] = []
    for _ in range(130):
        assert part.take("t", parcel(b"x" * 65_536), told.append)
    await until(lambda: len(told) == 130)
    assert max(table.commits) <= 64
    await part.stop()


@pytest.mark.parametrize("error", [OverflowFull(), DependencyUnavailable("postgresql", "connect")])
async def test_a_failure_is_told_to_all_and_shuts_the_door_for_a_while(
    metrics: IngestMetrics, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHUT_SECONDS", 0.1)
    table = Table(error=error)
    part = await writer(table, metrics)
    told: list[bool] = []
    for _ in range(600):
        assert part.take("t", parcel(), told.append)
    await until(lambda: len(told) == 600)
    assert not any(told)
    assert not part.take("t", parcel(), told.append)
    table.error = None
    await asyncio.sleep(0.15)
    assert part.take("t", parcel(), told.append)
    await until(lambda: len(told) == 601)
    assert told[-1] is True
    assert metrics.overflowed["refused"] == 601
    await part.stop()


async def test_a_write_that_hangs_is_left_behind_and_nothing_is_taken_until_it_ended(
    metrics: IngestMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHUT_SECONDS", 0.0)
    table = Table(hang=asyncio.Event())
    part = await writer(table, metrics, connect_seconds=0.05, write_seconds=0.05)
    stubborn = asyncio.Event()
    original = table.add

    async def add(records: Sequence[OverflowRecord], *, max_rows: int, max_bytes: int) -> None:
        try:
            await original(records, max_rows=max_rows, max_bytes=max_bytes)
        except asyncio.CancelledError:
            await stubborn.wait()  # as a driver that asks the server to cancel
            raise

    monkeypatch.setattr(table, "add", add)
    told: list[bool] = []
    assert part.take("t", parcel(), told.append)
    await until(lambda: told == [False])
    assert not part.take("t", parcel(), told.append)
    stubborn.set()
    table.hang = None
    await asyncio.sleep(0.05)
    assert part.take("t", parcel(), told.append)
    await until(lambda: told == [False, True])
    await part.stop()


async def test_the_connection_goes_when_nothing_came_for_a_while(
    metrics: IngestMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    table = Table()
    part = await writer(table, metrics)
    told: list[bool] = []
    assert part.take("t", parcel(), told.append)
    await until(lambda: table.closed)
    assert part.take("t", parcel(), told.append)
    await until(lambda: told == [True, True])
    await part.stop()
    assert not part.take("t", parcel(), told.append)


class Kafka(MemorySink):
    """A sink that takes every ``takes``-th record, and never one with a key in ``refused``."""

    takes = 1
    refused: Collection[bytes] = ()

    def submit(self, parcel: Parcel) -> None:
        self.auto = len(self.records) % self.takes == 0 and parcel.key not in self.refused
        super().submit(parcel)


class Draining:
    """A drain of a table into a sink."""

    def __init__(self, table: Table, metrics: IngestMetrics, **settings: float) -> None:
        self.sink = Kafka("t")
        self.problem: str | None = None
        chosen = OverflowSettings.model_validate(settings)
        self.overflow = Overflow(table.connection(), chosen, metrics)
        self.part = Drain(
            table.connection(),
            chosen,
            self.overflow,
            {"t": self.sink},
            lambda: self.problem,
            metrics,
            acknowledge_seconds=1.5,
        )


def rows(count: int) -> list[OverflowRecord]:
    return [OverflowRecord(new_id(), "t", b"k%d" % number, b"v", b"\0") for number in range(count)]


async def test_what_a_lost_process_left_goes_to_kafka_oldest_first(metrics: IngestMetrics) -> None:
    table = Table(rows(450))
    keys = [row.key for row in table.rows]
    draining = Draining(table, metrics, drain_rows=200)
    await draining.part.start()
    await until(lambda: not table.rows and table.closed)
    await draining.part.stop()
    assert [record.key for record in draining.sink.records] == keys
    assert metrics.overflowed["drained"] == 450
    assert metrics.overflow == OverflowTotal(0, 0, None)


async def test_what_kafka_does_not_acknowledge_stays(metrics: IngestMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("room_ingest.drain.RETRY_SECONDS", 0.01)
    table = Table([*rows(30), OverflowRecord(new_id(), "unknown topic", b"k", b"v", b"\0")])
    draining = Draining(table, metrics)
    draining.sink.takes = 3
    await draining.part.start()
    await until(lambda: len(table.rows) == 1)
    await draining.part.stop()
    assert metrics.overflowed["drained"] == 30
    assert len(draining.sink.records) > 30


async def test_records_of_a_partition_that_is_away_do_not_hold_up_the_others(
    metrics: IngestMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("room_ingest.drain.RETRY_SECONDS", 0.01)
    table = Table(rows(60))
    draining = Draining(table, metrics, drain_rows=10)
    away = {b"k%d" % number for number in range(25)}
    monkeypatch.setattr(draining.sink, "refused", away)
    await draining.part.start()
    await until(lambda: len(table.rows) == 25)
    assert {row.key for row in table.rows} == away
    away.clear()
    await until(lambda: not table.rows)
    await draining.part.stop()


async def test_without_kafka_it_looks_whether_the_table_is_there(
    metrics: IngestMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("room_ingest.drain.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("room_ingest.drain.RETRY_SECONDS", 0.01)
    table = Table(rows(3))
    draining = Draining(table, metrics, max_rows=5)
    draining.problem = "Kafka does not answer (connect)"
    assert draining.part.ready() == "Kafka does not answer (connect); overflow table: not asked yet"
    await draining.part.start()
    await until(lambda: draining.part.ready() is None)
    assert metrics.overflow.rows == 3
    assert draining.sink.records == []
    table.rows += rows(2)
    await until(lambda: draining.part.ready() == "Kafka does not answer (connect); overflow table: full")
    table.error = DependencyUnavailable("postgresql", "connect")
    await until(lambda: draining.part.ready() == "Kafka does not answer (connect); overflow table: connect")
    draining.problem = None
    assert draining.part.ready() is None
    table.error = None
    await until(lambda: not table.rows)
    await draining.part.stop()


async def test_a_sender_gets_200_from_the_table_and_503_without_it(open_port: OpenPort) -> None:
    table = Table()
    port = await open_port(overflow=table.connection())
    client = await port.connect()
    port.webhooks.auto = False
    answer = await client.ask(post(b"kept"))
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert [(row.topic, row.value) for row in table.rows] == [("t", b"kept")]
    large = await client.ask(post(length=70_000))
    assert (large.status, large.body) == (200, b'{"ok":false,"error":"payload_too_large"}')
    assert len(table.rows) == 2
    client = await port.connect()
    table.full = True
    answer = await client.ask(post())
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert (await client.ask(post())).status == 503
    assert (port.count("overflow"), port.count("payload_too_large"), port.count("unavailable")) == (1, 1, 2)
    assert port.metrics.in_flight == 0
