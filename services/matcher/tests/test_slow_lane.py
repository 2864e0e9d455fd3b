from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from room_common.contracts.envelope import Envelope, decode, encode
from room_common.contracts.topics import WEBHOOKS_RAW, WEBHOOKS_SLOW
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.execution import Postponed
from room_common.kafka.producer import Outgoing, RecordMetadata
from room_common.kafka.records import Record
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.domain.cascade import ledger_time, microseconds, moment
from room_matcher.handlers.deliveries import UNKNOWN_KEY, Deliveries
from room_matcher.handlers.opened import OpenedRecords
from room_matcher.handlers.slow_lane import LONGEST_RESTS, REST_SECONDS, SlowLane
from room_matcher.metrics import MatcherMetrics

HOUR_US = 3_600_000_000


class Sink:
    """A producer that keeps what it gets; every second record fails where ``error`` is set."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.error: DependencyUnavailable | None = None
        self.appended_ms = 0

    async def send_many(self, records: Sequence[Outgoing]) -> list[RecordMetadata | DependencyUnavailable]:
        self.sent += records
        fine = RecordMetadata(WEBHOOKS_SLOW, 0, 0, self.appended_ms)
        return [self.error if self.error and number % 2 else fine for number in range(len(records))]


def record(offset: int, received_at_us: int, appended_ms: int) -> Record:
    envelope = Envelope(id=UUID(int=offset), token_sha256=bytes(32), received_at_us=received_at_us)
    return Record(WEBHOOKS_RAW, 0, offset, appended_ms, b"key", b"body", encode(envelope))


def lane(sink: Sink) -> SlowLane:
    return SlowLane(sink, OpenedRecords(10), MatcherMetrics(CollectorRegistry()))  # type: ignore[arg-type]


async def test_a_record_goes_on_unchanged_but_for_a_receipt_that_the_ledger_replaces() -> None:
    sink, now = Sink(), 1_700_000_000_000_000
    records = [record(1, now, now // 1000), record(2, now + HOUR_US, now // 1000)]
    await lane(sink).take(records, "share")
    assert [(sent.topic, sent.key, sent.value) for sent in sink.sent] == [(WEBHOOKS_SLOW, b"key", b"body")] * 2
    again = [Record(sent.topic, 0, 9, now // 1000 + 60_000, sent.key, sent.value, sent.headers) for sent in sink.sent]
    assert [decode(copy).id for copy in again] == [UUID(int=1), UUID(int=2)]
    for first, copy in zip(records, again, strict=True):
        assert ledger_time(decode(first).received_at_us, first.timestamp_ms) == ledger_time(
            decode(copy).received_at_us, copy.timestamp_ms
        )


async def test_one_that_is_not_acknowledged_fails_all() -> None:
    sink = Sink()
    sink.error = DependencyUnavailable("kafka", "timeout")
    with pytest.raises(DependencyUnavailable):
        await lane(sink).take([record(1, 0, 1), record(2, 0, 1)], "share")


@given(st.integers(0, (1 << 53) - 1))
def test_a_moment_and_back(received_at_us: int) -> None:
    assert microseconds(moment(received_at_us)) == received_at_us


def test_a_record_is_opened_once_and_another_one_of_its_place_anew() -> None:
    opened = OpenedRecords(2)
    first, other = record(1, 5, 1), record(1, 6, 1)
    assert opened.open(first) is opened.open(first)
    assert opened.open(other).envelope.received_at_us == 6
    for offset in range(2, 6):
        opened.open(record(offset, 0, 1))
    assert len(opened._kept) == 2
    with pytest.raises(DeadLetter):
        opened.open(Record(WEBHOOKS_RAW, 0, 1, 0, None, b"", ()))


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def resting(sink: Sink, clock: Clock) -> SlowLane:
    return SlowLane(cast(Any, sink), OpenedRecords(10), MatcherMetrics(CollectorRegistry()), clock=clock)


def slow(appended_s: float, received_s: float) -> Record:
    return replace(record(1, int(received_s * 1_000_000), int(appended_s * 1000)), topic=WEBHOOKS_SLOW)


def test_a_record_of_the_slow_lane_rests_longer_the_longer_it_waited() -> None:
    subject, now = resting(Sink(), Clock()), Clock.now
    assert subject.rest(record(1, 0, 1)) == 0  # not in the slow lane yet
    assert subject.rest(slow(now, now)) == REST_SECONDS
    assert subject.rest(slow(now - 20, now - 20)) == REST_SECONDS - 20
    assert subject.rest(slow(now - REST_SECONDS, now - 100)) == 0
    assert subject.rest(slow(now, now - 7200)) == 120
    assert subject.rest(slow(now, now - 10**7)) == LONGEST_RESTS * REST_SECONDS


async def test_the_rest_is_told_by_the_broker_s_clock() -> None:
    sink, clock = Sink(), Clock()
    subject = resting(sink, clock)
    sink.appended_ms = int((clock.now - 3600) * 1000)
    await subject.take([slow(clock.now - 3700, clock.now - 3700)], "key_again")
    assert subject.rest(slow(clock.now - 3600, clock.now - 3600)) == REST_SECONDS
    assert subject.rest(slow(clock.now, clock.now)) == REST_SECONDS  # never longer, whatever the clocks say


class NoKey:
    async def find(self, token_sha256: bytes, *, since: float = 0.0) -> None:
        raise DependencyUnavailable("key", "unknown_key")


class NoRows:
    """A database that is empty."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[NoRows]:
        yield self

    async def execute(self, statement: str, parameters: object) -> NoRows:
        return self

    async def __aiter__(self) -> AsyncIterator[object]:
        rows: tuple[object, ...] = ()
        for row in rows:
            yield row


def deliveries(sink: Sink, clock: Clock) -> Deliveries:
    return Deliveries(
        database=cast(Any, NoRows()),
        sources=cast(SourceCache, NoKey()),
        secrets=cast(Any, None),
        items=cast(Any, None),
        opened=OpenedRecords(10),
        slow_lane=resting(sink, clock),
        metrics=MatcherMetrics(CollectorRegistry()),
        attempts=3,
    )


@pytest.mark.parametrize("poisoned", [False, True])
async def test_without_its_key_a_record_goes_round_in_the_slow_lane_and_stays_itself(poisoned: bool) -> None:
    sink, clock = Sink(), Clock()
    subject = deliveries(sink, clock)

    async def meet(one: Record) -> None:
        await (subject.on_poison(one, KeyError()) if poisoned else subject.handle(one))

    first = replace(record(1, int(clock.now * 1e6), int(clock.now * 1e3)))
    await meet(first)
    (moved,) = sink.sent
    rested = Record(WEBHOOKS_SLOW, 0, 7, int(clock.now * 1e3), moved.key, moved.value, moved.headers)
    with pytest.raises(Postponed) as raised:
        await meet(rested)
    assert (raised.value.reason, raised.value.seconds) == (UNKNOWN_KEY, REST_SECONDS)
    clock.now += REST_SECONDS
    await meet(rested)
    _, again = sink.sent
    assert again == moved
    assert decode(rested).id == decode(first).id
    assert decode(rested).received_at_us == decode(first).received_at_us


async def test_every_other_dependency_is_waited_for_in_place() -> None:
    class Away:
        async def find(self, token_sha256: bytes, *, since: float = 0.0) -> None:
            raise DependencyUnavailable("postgresql", "connect")

    sink = Sink()
    subject = deliveries(sink, Clock())
    subject._sources = cast(SourceCache, Away())
    with pytest.raises(DependencyUnavailable):
        await subject.handle(record(1, 0, 1))
    assert sink.sent == []
