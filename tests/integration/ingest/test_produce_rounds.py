"""Produce rounds on three brokers: leaders that move, records too large, producer ids that are fenced or unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer
from prometheus_client import CollectorRegistry

from room_common.kafka.settings import KafkaSettings
from room_ingest.cluster import AiokafkaCluster
from room_ingest.domain.record_format import headers
from room_ingest.metrics import IngestMetrics
from room_ingest.rounds import Rounds
from room_ingest.sink import Parcel
from room_testing.parts import Broker

pytestmark = [pytest.mark.integration, pytest.mark.apache]

PARTITIONS = 6


class Submitted(Parcel):
    """A record whose outcome can be waited for."""

    def __init__(self, number: int, size: int) -> None:
        self.key = b"k%d" % number
        self.value = b"%d " % number + b"x" * size
        self.headers = headers([("id", b"%d" % number)])
        self.spread = number
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def done(self, written: bool) -> None:
        self.outcome.set_result(written)


class Writing:
    """Rounds on one topic of the cluster."""

    def __init__(self, bootstrap: str, topic: str, seconds: float = 20.0) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.metrics = IngestMetrics(CollectorRegistry())
        self.rounds = Rounds(
            AiokafkaCluster(KafkaSettings(bootstrap_servers=bootstrap), 4.0),
            (topic,),
            self.metrics,
            idempotence=True,
            acknowledge_seconds=seconds,
            request_seconds=4.0,
        )

    async def ready(self) -> None:
        async with asyncio.timeout(30):
            while self.rounds.problem() is not None:
                await asyncio.sleep(0.02)

    def submit(self, number: int, size: int = 100) -> asyncio.Future[bool]:
        parcel = Submitted(number, size)
        self.rounds.lanes[self.topic].submit(parcel)
        return parcel.outcome

    async def numbers(self) -> list[int]:
        """What is in the topic, partition by partition."""
        found = []
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([self.topic])
            async with asyncio.timeout(30):
                while not consumer.assignment():
                    await consumer.getmany(timeout_ms=100)
                ends = await consumer.end_offsets(list(consumer.assignment()))
                await consumer.seek_to_beginning()
                while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [int((record.value or b"").split()[0]) for record in records]
        return found


MakeWriting = Callable[..., Awaitable[Writing]]


@pytest.fixture
async def write(kafka_cluster: Broker, fresh_topic: Callable[..., Awaitable[str]]) -> AsyncIterator[MakeWriting]:
    """``await write(topic=None, config={...})``: rounds on a topic, a fresh one by default."""
    made: list[Writing] = []

    async def make(topic: str | None = None, config: dict[str, str] | None = None, seconds: float = 20.0) -> Writing:
        name = topic or await fresh_topic(PARTITIONS, config, kafka_cluster.bootstrap, 3)
        writing = Writing(kafka_cluster.bootstrap, name, seconds)
        made.append(writing)
        await writing.rounds.start()
        await writing.ready()
        return writing

    yield make
    for writing in made:
        await writing.rounds.stop()


async def test_records_spread_over_three_leaders_arrive_once(write: MakeWriting) -> None:
    writing = await write()
    assert len({writing.rounds.lanes[writing.topic].partitions[index].node for index in range(PARTITIONS)}) == 3
    outcomes = [writing.submit(number) for number in range(600)]
    assert all(await asyncio.gather(*outcomes))
    assert sorted(await writing.numbers()) == list(range(600))


async def test_leaders_that_move_with_every_broker_of_a_rolling_restart_are_followed(
    write: MakeWriting, kafka_cluster: Broker
) -> None:
    writing = await write()
    outcomes: list[asyncio.Future[bool]] = []
    restarting = True

    async def keep_writing() -> None:
        while restarting:
            outcomes.append(writing.submit(len(outcomes)))
            await asyncio.sleep(0.005)

    task = asyncio.create_task(keep_writing())
    for node in range(3):
        await asyncio.to_thread(kafka_cluster.restart, node)
    restarting = False
    await task
    assert all(await asyncio.gather(*outcomes))
    assert sorted(await writing.numbers()) == list(range(len(outcomes)))


async def test_a_record_too_large_for_the_topic_is_refused_alone(write: MakeWriting) -> None:
    writing = await write(config={"max.message.bytes": "100000"})
    small = [writing.submit(number * PARTITIONS, 40_000) for number in range(12)]  # one partition: more than a batch
    large = writing.submit(13 * PARTITIONS, 150_000)
    assert all(await asyncio.gather(*small))
    assert await large is False
    assert await writing.submit(14 * PARTITIONS)
    assert sorted(await writing.numbers()) == [*range(0, 12 * PARTITIONS, PARTITIONS), 14 * PARTITIONS]
    assert writing.rounds.alive() is None


async def test_a_fenced_producer_id_is_given_up_and_nothing_is_lost(write: MakeWriting) -> None:
    writing = await write()
    assert await writing.submit(0)
    identity = writing.rounds._identity
    assert identity is not None
    other = await write(topic=writing.topic)
    other.rounds._identity = identity[0], identity[1] + 1
    assert await other.submit(0 + PARTITIONS)
    assert all(await asyncio.gather(*(writing.submit(number) for number in (2 * PARTITIONS, 1, 2))))
    assert writing.rounds._identity != identity
    assert sorted(await writing.numbers()) == [0, 1, 2, PARTITIONS, 2 * PARTITIONS]


@pytest.mark.parametrize("change", ["sequence", "unknown id"])
async def test_a_gap_or_an_unknown_producer_id_costs_a_new_one(write: MakeWriting, change: str) -> None:
    writing = await write()
    assert await writing.submit(0)
    identity = writing.rounds._identity
    assert identity is not None
    if change == "sequence":
        writing.rounds.lanes[writing.topic].partitions[0].sequence += 7
    else:
        writing.rounds._identity = identity[0] + 1_000_000, 5
    assert await writing.submit(PARTITIONS)
    assert await writing.submit(2 * PARTITIONS)
    assert sorted(await writing.numbers()) == [0, PARTITIONS, 2 * PARTITIONS]


async def test_with_too_few_replicas_in_sync_nothing_is_acknowledged(write: MakeWriting, kafka_cluster: Broker) -> None:
    writing = await write(seconds=3.0)
    assert await writing.submit(0)
    for node in (1, 2):
        await asyncio.to_thread(kafka_cluster.pause, node)
    refused = [writing.submit(number) for number in range(1, 1 + PARTITIONS)]
    assert not any(await asyncio.gather(*refused))
    for node in (1, 2):
        await asyncio.to_thread(kafka_cluster.resume, node)
    async with asyncio.timeout(60):
        number = 100
        while not all(await asyncio.gather(*(writing.submit(number + index) for index in range(PARTITIONS)))):
            number += PARTITIONS
    assert writing.rounds.alive() is None
