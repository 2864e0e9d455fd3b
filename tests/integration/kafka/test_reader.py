"""Reading records back by their place, on the broker of the run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from room_common.errors import DependencyUnavailable
from room_common.kafka.producer import Producer
from room_common.kafka.reader import Place, Reader
from room_common.kafka.settings import KafkaSettings

from .conftest import Fill

pytestmark = pytest.mark.integration

FreshTopic = Callable[..., Awaitable[str]]


@pytest.fixture
def reader(settings: KafkaSettings) -> Reader:
    return Reader(settings)


async def test_any_record_of_a_batch_is_read(reader: Reader, fresh_topic: FreshTopic, fill: Fill) -> None:
    topic = await fresh_topic()
    sent = await fill(topic, 40)
    for number in (0, 1, 17, 39):
        record = await reader.read(Place(topic, 0, sent[number].offset))
        assert record is not None
        assert (record.value, record.offset) == (b"%d" % number, sent[number].offset)


async def test_many_are_read_over_partitions_and_gaps(reader: Reader, fresh_topic: FreshTopic, fill: Fill) -> None:
    topic = await fresh_topic(partitions=3)
    wanted = {}
    for partition in range(3):
        sent = [one for _ in range(4) for one in await fill(topic, 100, partition=partition)]
        for number in (0, 3, 250, 399):
            wanted[Place(topic, partition, sent[number].offset)] = b"%d" % (number % 100)
    nowhere = Place(topic, 1, 10_000)
    found = await reader.read_many([*wanted, nowhere])
    assert {place: record.value for place, record in found.items()} == wanted


@pytest.mark.parametrize("offset", [3, 1_000_000])
async def test_what_is_not_there_is_none(reader: Reader, fresh_topic: FreshTopic, fill: Fill, offset: int) -> None:
    topic = await fresh_topic()
    await fill(topic, 3)
    assert await reader.read(Place(topic, 0, offset)) is None


async def test_a_topic_or_partition_that_is_not_there(reader: Reader, fresh_topic: FreshTopic) -> None:
    topic = await fresh_topic()
    with pytest.raises(DependencyUnavailable):
        await reader.read(Place(topic, 7, 0), seconds=2)
    assert await reader.find("test.nowhere", lambda _: True, since_ms=0) is None


async def test_a_record_is_found_by_what_it_says(reader: Reader, fresh_topic: FreshTopic, fill: Fill) -> None:
    topic = await fresh_topic(partitions=2)
    began = int(time.time() * 1000) - 1000
    await fill(topic, 50, partition=0)
    await fill(topic, 50, partition=1)
    found = await reader.find(topic, lambda record: record.value == b"33" and record.partition == 1, since_ms=began)
    assert found is not None and found.offset == 33
    assert await reader.find(topic, lambda record: record.value == b"33", since_ms=began, partitions=[0]) is not None
    assert await reader.find(topic, lambda record: record.value == b"none", since_ms=began) is None


async def test_nobody_answers(settings: KafkaSettings) -> None:
    reader = Reader(settings.model_copy(update={"bootstrap_servers": "127.0.0.1:1"}))
    with pytest.raises(DependencyUnavailable):
        await reader.read(Place("t", 0, 0), seconds=3)


async def test_an_empty_topic(reader: Reader, fresh_topic: FreshTopic, producer: Producer) -> None:
    topic = await fresh_topic()
    assert await reader.read(Place(topic, 0, 0)) is None
    assert await reader.read_many([]) == {}
