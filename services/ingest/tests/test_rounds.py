"""Produce rounds against a scripted cluster: what is sent, what is sent again, and who is told what."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

import pytest
from aiokafka import errors as kafka
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from room_ingest import rounds as module
from room_ingest.cluster import Link
from room_ingest.domain.record_format import headers
from room_ingest.metrics import IngestMetrics
from room_ingest.produce import ProduceAnswer, ProduceRequest, Result
from room_ingest.rounds import Rounds
from room_ingest.sink import Parcel

TOPIC = "t"
NOT_LEADER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, TOO_LARGE, DENIED, DUPLICATE = 6, 19, 45, 10, 29, 46


class Sent(NamedTuple):
    """One batch as it was sent."""

    producer_id: int
    sequence: int
    records: list[Any]


Batches = dict[tuple[bytes, int], Sent]


def parse(request: ProduceRequest) -> Batches:
    data = request.encode()
    at = struct.calcsize(">hhii")
    (topics,) = struct.unpack_from(">i", data, at - 4)
    found = {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + length]
        at += 2 + length
        (partitions,) = struct.unpack_from(">i", data, at)
        at += 4
        for _ in range(partitions):
            index, size = struct.unpack_from(">ii", data, at)
            batch = DefaultRecordBatch(data[at + 8 : at + 8 + size])
            found[topic, index] = Sent(batch.producer_id, batch.base_sequence, list(batch))
            at += 8 + size
    assert at == len(data)
    return found


@dataclass
class Script:
    """A cluster of scripted nodes. ``behave`` decides on each request: codes by partition, or raises."""

    counts: dict[str, int] = field(default_factory=lambda: {TOPIC: 2})
    leaders: dict[int, int | None] = field(default_factory=dict)
    sent: list[tuple[int, Batches]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    down: bool = False
    identities: int = 0
    given_up: int = 0
    behave: Callable[[int, int], int] = lambda call, partition: 0
    hold: asyncio.Event | None = None
    broken: Exception | None = None

    async def refresh(self, topics: Sequence[str]) -> None:
        if self.down:
            raise kafka.KafkaConnectionError

    async def identify(self) -> tuple[int, int]:
        self.identities += 1
        return 1000 + self.identities, 0

    def partitions(self, topic: str) -> int:
        return self.counts.get(topic, 0)

    def denied(self, topic: str) -> bool:
        return False

    def leader(self, topic: str, partition: int) -> int | None:
        return self.leaders.get(partition, 1)

    async def link(self, node: int) -> Link:
        if self.down:
            raise kafka.NodeNotReadyError
        return ScriptLink(self, node)

    async def drop(self) -> None:
        pass


class ScriptLink:
    def __init__(self, script: Script, node: int) -> None:
        self.script = script
        self.node = node

    def send(self, request: ProduceRequest) -> Awaitable[list[Result]]:
        batches = parse(request)
        self.script.sent.append((self.node, batches))
        self.script.raw.append(request.encode())
        return self.answer(len(self.script.sent), batches)

    async def answer(self, call: int, batches: Batches) -> list[Result]:
        await asyncio.sleep(0)
        if self.script.hold is not None:
            await self.script.hold.wait()
        if self.script.broken is not None:
            raise self.script.broken
        return [Result(topic, index, self.script.behave(call, index)) for topic, index in batches]

    def give_up(self) -> None:
        self.script.given_up += 1


class Told(Parcel):
    """A record that tells ``told``."""

    def __init__(self, value: bytes, spread: int, told: Callable[[bool], None]) -> None:
        self.key, self.value, self.headers, self.spread = b"k", value, headers([("n", b"v")]), spread
        self.told = told

    def done(self, written: bool) -> None:
        self.told(written)


class Bench:
    """Rounds on a script, with the outcomes of what was submitted."""

    def __init__(
        self, script: Script, *, idempotence: bool = True, acknowledge: float = 1.5, alone: bool = True
    ) -> None:
        self.script = script
        self.metrics = IngestMetrics(CollectorRegistry())
        self.rounds = Rounds(
            script,
            (TOPIC,),
            self.metrics,
            idempotence=idempotence,
            acknowledge_seconds=acknowledge,
            request_seconds=1.0,
            alone=alone,
        )
        self.outcomes: dict[int, list[bool]] = {}

    def submit(self, number: int, spread: int = 0, size: int = 1) -> None:
        told = self.outcomes.setdefault(number, [])
        self.rounds.lanes[TOPIC].submit(Told(b"%d" % number + b" " * size, spread, told.append))

    async def ready(self) -> None:
        async with asyncio.timeout(5):
            while self.rounds.problem() is not None:
                await asyncio.sleep(0.005)

    async def settled(self) -> None:
        async with asyncio.timeout(10):
            while any(not told for told in self.outcomes.values()):
                await asyncio.sleep(0.005)
        assert all(len(told) == 1 for told in self.outcomes.values())

    @property
    def values(self) -> list[bool]:
        return [told[0] for _, told in sorted(self.outcomes.items())]


MakeBench = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def make_bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeBench]:
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.01,))
    made: list[Bench] = []

    async def make(script: Script, *, start: bool = True, **settings: Any) -> Bench:
        bench = Bench(script, **settings)
        made.append(bench)
        await bench.rounds.start()
        if start:
            await bench.ready()
        return bench

    yield make
    for bench in made:
        await bench.rounds.stop()


def sequences(script: Script, partition: int = 0) -> list[tuple[int, int, int]]:
    found = []
    for _, batches in script.sent:
        batch = batches.get((TOPIC.encode(), partition))
        if batch is not None:
            found.append((batch.producer_id, batch.sequence, len(batch.records)))
    return found


async def test_what_arrives_while_a_request_is_out_is_the_next_request(make_bench: MakeBench) -> None:
    script = Script(hold=asyncio.Event())
    bench = await make_bench(script)
    bench.submit(0)
    await asyncio.sleep(0.01)
    for number in range(1, 10):
        bench.submit(number, spread=number)
    await asyncio.sleep(0.01)
    assert len(script.sent) == 1
    assert script.hold is not None
    script.hold.set()
    await bench.settled()
    assert bench.values == [True] * 10
    assert len(script.sent) == 2
    assert sequences(script) == [(1001, 0, 1), (1001, 1, 4)]
    assert bench.rounds.outstanding == 0


async def test_records_arrive_as_they_were_given(make_bench: MakeBench) -> None:
    script = Script()
    bench = await make_bench(script, idempotence=False)
    bench.submit(7, spread=1)
    await bench.settled()
    ((_, batches),) = script.sent
    (record,) = batches[TOPIC.encode(), 1].records
    assert (record.key, record.value, record.headers) == (b"k", b"7 ", [("n", b"v")])
    assert sequences(script, 1) == [(-1, -1, 1)]
    assert script.identities == 0


@pytest.mark.parametrize("code", [NOT_LEADER, NOT_ENOUGH_REPLICAS])
async def test_a_passing_error_sends_the_same_bytes_again(make_bench: MakeBench, code: int) -> None:
    script = Script(behave=lambda call, partition: code if call < 3 else 0)
    bench = await make_bench(script)
    bench.submit(0)
    await bench.settled()
    assert bench.values == [True]
    assert len(script.raw) == 3
    assert len(set(script.raw)) == 1


async def test_one_partition_in_trouble_does_not_hold_the_others(make_bench: MakeBench) -> None:
    script = Script(behave=lambda call, partition: NOT_ENOUGH_REPLICAS if partition == 0 else 0)
    bench = await make_bench(script, acknowledge=0.3)
    bench.submit(0, spread=0)
    for number in range(1, 6):
        bench.submit(number, spread=1)
        await asyncio.sleep(0.005)
    assert all(bench.outcomes[number] == [True] for number in range(1, 6))
    await bench.settled()
    assert bench.values == [False] + [True] * 5


async def test_a_leader_that_moved_is_followed(make_bench: MakeBench) -> None:
    script = Script()
    bench = await make_bench(script)
    script.behave = lambda call, partition: NOT_LEADER if call == 1 else 0
    script.leaders = {0: 2}
    bench.submit(0)
    await bench.settled()
    assert [node for node, _ in script.sent] == [1, 2]


async def test_a_partition_without_a_leader_waits_for_one(make_bench: MakeBench) -> None:
    script = Script(leaders={0: None})
    bench = await make_bench(script)
    bench.submit(0)
    await asyncio.sleep(0.05)
    assert script.sent == []
    script.leaders = {}
    await bench.settled()
    assert bench.values == [True]


async def test_a_sequence_error_builds_the_records_again_under_a_new_id(make_bench: MakeBench) -> None:
    script = Script(behave=lambda call, partition: OUT_OF_ORDER if call == 2 else 0)
    bench = await make_bench(script)
    for number in range(3):
        bench.submit(number)
        await bench.settled()
    assert bench.values == [True] * 3
    assert sequences(script) == [(1001, 0, 1), (1001, 1, 1), (1002, 0, 1), (1002, 1, 1)]


async def test_a_duplicate_is_a_success(make_bench: MakeBench) -> None:
    bench = await make_bench(Script(behave=lambda call, partition: DUPLICATE))
    bench.submit(0)
    await bench.settled()
    assert bench.values == [True]


async def test_a_refused_batch_is_told_and_leaves_no_gap(make_bench: MakeBench) -> None:
    script = Script(behave=lambda call, partition: DENIED if call == 1 else 0)
    bench = await make_bench(script)
    bench.submit(0)
    await bench.settled()
    bench.submit(1)
    await bench.settled()
    assert bench.values == [False, True]
    assert sequences(script) == [(1001, 0, 1), (1002, 0, 1)]


async def test_a_batch_too_large_is_sent_in_pieces_and_a_single_record_is_refused(make_bench: MakeBench) -> None:
    script = Script()
    bench = await make_bench(script)
    script.behave = lambda call, partition: (
        TOO_LARGE if sum(len(r.value or b"") for r in script.sent[call - 1][1][TOPIC.encode(), 0].records) > 4000 else 0
    )
    for number in range(8):
        bench.submit(number, size=1000)
    bench.submit(8, size=6000)
    await bench.settled()
    assert bench.values == [True] * 8 + [False]


async def test_a_broken_connection_sends_the_same_bytes_again(make_bench: MakeBench) -> None:
    script = Script(broken=kafka.KafkaConnectionError())
    bench = await make_bench(script)
    bench.submit(0)
    await asyncio.sleep(0.05)
    script.broken = None
    await bench.settled()
    assert bench.values == [True]
    assert len(set(script.raw)) == 1
    assert script.given_up == 0


async def test_a_hanging_connection_is_given_up(make_bench: MakeBench) -> None:
    script = Script(broken=TimeoutError())
    bench = await make_bench(script)
    bench.submit(0)
    await asyncio.sleep(0.03)
    script.broken = None
    await bench.settled()
    assert script.given_up >= 1


async def test_late_records_are_told_and_dropped_and_the_next_go_on_under_a_new_id(make_bench: MakeBench) -> None:
    script = Script()
    bench = await make_bench(script, acknowledge=0.15)
    bench.submit(0)
    await bench.settled()
    script.down = True
    for number in range(1, 5):
        bench.submit(number)
        await asyncio.sleep(0.005)
    await bench.settled()
    assert bench.values == [True] + [False] * 4
    assert bench.rounds.outstanding == 0
    assert bench.metrics.expired == 4
    async with asyncio.timeout(5):
        while bench.rounds.ready() is None:
            await asyncio.sleep(0.01)
    script.down = False
    await bench.ready()
    bench.submit(5)
    await bench.settled()
    assert bench.outcomes[5] == [True]
    assert sequences(script)[-1] == (1000 + script.identities, 0, 1)
    assert bench.rounds.alive() is None


async def test_an_answer_that_comes_too_late_tells_nobody_twice(make_bench: MakeBench) -> None:
    script = Script(hold=asyncio.Event())
    bench = await make_bench(script, acknowledge=0.1)
    bench.submit(0)
    await bench.settled()
    assert script.hold is not None
    script.hold.set()
    bench.submit(1)
    await bench.settled()
    await asyncio.sleep(0.02)
    assert bench.outcomes == {0: [False], 1: [True]}
    assert sequences(script) == [(1001, 0, 1), (1001, 1, 1)]


async def test_with_another_place_to_go_one_record_a_broker_tries_a_stalled_partition(make_bench: MakeBench) -> None:
    script = Script(hold=asyncio.Event())
    bench = await make_bench(script, acknowledge=0.3, alone=False)
    bench.submit(0, spread=0)
    bench.submit(1, spread=1)
    await bench.settled()
    assert bench.values == [False, False]
    bench.submit(2, spread=0)  # would queue up behind the late one, which is still out
    assert bench.outcomes[2] == [False]
    assert script.hold is not None
    script.hold.set()
    await asyncio.sleep(0.02)
    bench.submit(3, spread=0)
    bench.submit(4, spread=1)
    await bench.settled()
    assert (bench.outcomes[3], bench.outcomes[4]) == ([True], [True])
    script.behave = lambda call, partition: NOT_ENOUGH_REPLICAS
    bench.submit(5, spread=0)
    bench.submit(6, spread=1)
    await bench.settled()
    assert (bench.outcomes[5], bench.outcomes[6]) == ([False], [False])
    bench.submit(7, spread=0)
    bench.submit(8, spread=1)
    assert bench.outcomes[8] == [False]  # one tries already
    assert bench.outcomes[7] == []
    script.behave = lambda call, partition: 0
    await bench.settled()
    assert bench.outcomes[7] == [True]
    bench.submit(9, spread=1)
    await bench.settled()
    assert bench.outcomes[9] == [True]


async def test_with_another_place_to_go_nothing_waits_for_a_cluster_that_is_away(make_bench: MakeBench) -> None:
    script = Script()
    bench = await make_bench(script, alone=False)
    script.down = True
    bench.submit(0)
    async with asyncio.timeout(5):
        while bench.rounds.problem() is None:
            await asyncio.sleep(0.005)
    assert bench.rounds.ready() is None
    bench.submit(1, spread=1)
    assert bench.outcomes == {0: [], 1: [False]}
    script.down = False
    await bench.settled()
    assert bench.outcomes[0] == [True]
    bench.submit(2, spread=1)
    await bench.settled()
    assert bench.outcomes[2] == [True]


async def test_before_kafka_answers_records_are_refused_at_once(make_bench: MakeBench) -> None:
    script = Script(down=True)
    bench = await make_bench(script, start=False)
    bench.submit(0)
    assert bench.outcomes[0] == [False]
    assert bench.rounds.ready() == "no connection to Kafka yet"
    script.down = False
    await bench.ready()
    bench.submit(1)
    await bench.settled()
    assert bench.outcomes[1] == [True]


async def test_a_missing_topic_is_waited_for(make_bench: MakeBench) -> None:
    script = Script(counts={})
    bench = await make_bench(script, start=False)
    await asyncio.sleep(0.05)
    assert bench.rounds.ready() == "topic t does not exist"
    script.counts = {TOPIC: 1}
    await bench.ready()
    bench.submit(0)
    await bench.settled()
    assert bench.values == [True]


async def test_a_topic_made_again_with_fewer_partitions_takes_what_waits(make_bench: MakeBench) -> None:
    script = Script(counts={TOPIC: 4}, behave=lambda call, partition: NOT_LEADER)
    bench = await make_bench(script)
    for number in range(4):
        bench.submit(number, spread=number)
    await asyncio.sleep(0.02)
    script.counts = {TOPIC: 1}
    script.behave = lambda call, partition: 0 if partition == 0 else NOT_LEADER
    await bench.settled()
    assert bench.values == [True] * 4


async def test_a_defect_in_a_round_refuses_everything_and_fails_liveness(make_bench: MakeBench) -> None:
    script = Script(broken=ZeroDivisionError())
    bench = await make_bench(script)
    failures: list[BaseException] = []
    bench.rounds.supervise(lambda part, error: failures.append(error))
    bench.submit(0)
    await bench.settled()
    bench.submit(1)
    assert bench.values == [False, False]
    assert "ZeroDivisionError" in (bench.rounds.alive() or "")
    assert len(failures) == 1


async def test_a_caller_that_raises_spoils_no_other(make_bench: MakeBench) -> None:
    bench = await make_bench(Script())

    def broken(written: bool) -> None:
        raise ValueError

    bench.rounds.lanes[TOPIC].submit(Told(b"v", 0, broken))
    bench.submit(1)
    await bench.settled()
    assert bench.values == [True]
    assert bench.rounds.alive() is None


async def test_stopping_waits_for_what_is_out(make_bench: MakeBench) -> None:
    script = Script(hold=asyncio.Event())
    bench = await make_bench(script)
    bench.submit(0)
    stopping = asyncio.ensure_future(bench.rounds.stop())
    await asyncio.sleep(0.03)
    assert not stopping.done()
    assert script.hold is not None
    script.hold.set()
    await stopping
    assert bench.values == [True]


partitions = st.lists(st.tuples(st.integers(0, 99), st.integers(-1, 99)), max_size=4)


@given(st.lists(st.tuples(st.binary(max_size=20), partitions), max_size=4))
def test_answers_are_read(topics: list[tuple[bytes, list[tuple[int, int]]]]) -> None:
    data = struct.pack(">i", len(topics))
    for topic, partitions in topics:
        data += struct.pack(">h", len(topic)) + topic + struct.pack(">i", len(partitions))
        for partition, error in partitions:
            data += struct.pack(">ihqqq", partition, error, 5, -1, 0)
    expected = [Result(topic, *pair) for topic, partitions in topics for pair in partitions]
    assert ProduceAnswer.decode(BytesIO(data + struct.pack(">i", 0))) == expected


def test_a_broker_without_the_version_is_told_apart() -> None:
    request = ProduceRequest({}, 1500)
    assert request.prepare({0: (3, 11)}) is request
    with pytest.raises(kafka.IncompatibleBrokerVersion):
        request.prepare({0: (0, 6)})
