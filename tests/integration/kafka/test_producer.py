from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from prometheus_client import CollectorRegistry

from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.producer import MAX_REQUEST_BYTES, Outgoing, Producer, RecordMetadata
from room_common.kafka.settings import KafkaSettings
from room_testing.parts import Broker

pytestmark = pytest.mark.integration

FreshTopic = Callable[..., Awaitable[str]]


async def read(settings: KafkaSettings, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        records: list[Any] = []
        async with asyncio.timeout(30):
            while len(records) < count:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    records.extend(batch)
        return records
    finally:
        await consumer.stop()


async def test_a_record_arrives_byte_for_byte(
    producer: Producer, settings: KafkaSettings, fresh_topic: FreshTopic
) -> None:
    topic = await fresh_topic()
    sent = await producer.send(topic, key=b"\xffk", value=b"\x00\xff", headers=(("id", b"\xfe"), ("id", b"")))
    assert (sent.topic, sent.partition, sent.offset) == (topic, 0, 0)
    assert sent.timestamp_ms > 0
    (record,) = await read(settings, topic, 1)
    assert (record.key, record.value) == (b"\xffk", b"\x00\xff")
    assert record.headers == (("id", b"\xfe"), ("id", b""))


async def test_many_tell_which_failed(producer: Producer, fresh_topic: FreshTopic) -> None:
    topic = await fresh_topic()
    results = await producer.send_many(
        [
            Outgoing(topic, b"a", b"1"),
            Outgoing(topic, b"a", bytes(MAX_REQUEST_BYTES)),
            Outgoing(topic, b"a", b"2"),
        ]
    )
    first, second, third = results
    assert isinstance(first, RecordMetadata)
    assert isinstance(second, DeadLetter)
    assert second.kind == "too_large"
    assert isinstance(third, RecordMetadata)
    assert third.offset == first.offset + 1


async def test_a_record_that_is_too_large_stops_nothing(producer: Producer, fresh_topic: FreshTopic) -> None:
    topic = await fresh_topic()
    with pytest.raises(DeadLetter):
        await producer.send(topic, key=b"a", value=bytes(MAX_REQUEST_BYTES))
    assert (await producer.send(topic, key=b"a", value=b"1")).offset == 0


@pytest.mark.apache
async def test_an_unknown_topic_is_a_missing_dependency(producer: Producer) -> None:
    with pytest.raises(DependencyUnavailable) as caught:
        await producer.send("test.no-such-topic", key=b"a", value=b"1", timeout=10)
    assert caught.value.kind in ("unknown_topic", "timeout")


@pytest.mark.apache
async def test_a_refusal_by_the_broker_replaces_the_client(
    producer: Producer, registry: CollectorRegistry, fresh_topic: FreshTopic
) -> None:
    topic = await fresh_topic(config={"max.message.bytes": "2000"})
    with pytest.raises(DeadLetter):
        await producer.send(topic, key=b"a", value=bytes(3000))
    for number in range(3):
        assert (await producer.send(topic, key=b"a", value=b"1")).offset == number
    assert _recreations(registry) == 1


async def test_a_dead_sender_is_replaced(
    producer: Producer, registry: CollectorRegistry, fresh_topic: FreshTopic
) -> None:
    topic = await fresh_topic()
    dying = producer._client
    assert dying is not None
    dying._sender.sender_task.cancel()
    results = await asyncio.gather(*(producer.send(topic, key=b"a", value=b"1", timeout=20) for _ in range(20)))
    assert len(results) == 20
    assert producer._client is not dying
    assert producer.alive() is None
    assert producer.ready() is None
    assert _recreations(registry) == 1


@pytest.mark.apache
async def test_a_lost_sequence_replaces_the_client(
    producer: Producer, registry: CollectorRegistry, fresh_topic: FreshTopic
) -> None:
    topic = await fresh_topic()
    await producer.send(topic, key=b"a", value=b"1")
    assert producer._client is not None
    producer._client._txn_manager.increment_sequence_number(TopicPartition(topic, 0), 7)
    with pytest.raises(DependencyUnavailable) as caught:
        await producer.send(topic, key=b"a", value=b"2")
    assert caught.value.kind == "producer_lost"
    assert (await producer.send(topic, key=b"a", value=b"3", timeout=20)).offset == 1
    assert _recreations(registry) == 1


async def test_without_a_broker_start_and_stop_end(settings: KafkaSettings) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9"})
    producer = Producer(nowhere, CollectorRegistry())
    for _ in range(2):
        with pytest.raises(DependencyUnavailable) as caught:
            await producer.start()
        assert caught.value.kind == "connect"
    with pytest.raises(DependencyUnavailable) as caught:
        await producer.send("topic", key=b"a", value=b"1")
    assert caught.value.kind == "not_started"
    assert producer.ready() is not None
    await producer.stop()


async def test_a_frozen_broker_delays_a_send_no_longer_than_asked(
    producer: Producer, fresh_topic: FreshTopic, kafka_broker: Broker
) -> None:
    topic = await fresh_topic()
    await producer.send(topic, key=b"a", value=b"1")
    kafka_broker.pause()
    results = await producer.send_many([Outgoing(topic, b"a", b"2")] * 3, timeout=1.0)
    assert [type(result) for result in results] == [DependencyUnavailable] * 3
    kafka_broker.resume()
    sent = await producer.send(topic, key=b"a", value=b"3")
    assert sent.offset >= 1


async def test_stop_ends_with_the_broker_frozen_and_records_in_flight(
    settings: KafkaSettings, fresh_topic: FreshTopic, kafka_broker: Broker
) -> None:
    topic = await fresh_topic()
    producer = Producer(settings, CollectorRegistry())
    await producer.start()
    await producer.send(topic, key=b"a", value=b"1")
    kafka_broker.pause()
    with pytest.raises(DependencyUnavailable):
        await producer.send(topic, key=b"a", value=b"2", timeout=0.5)
    async with asyncio.timeout(producer.stop_timeout):
        await producer.stop()


@pytest.mark.apache
async def test_every_acknowledged_record_outlives_a_killed_broker(
    producer: Producer, settings: KafkaSettings, fresh_topic: FreshTopic, kafka_broker: Broker
) -> None:
    topic = await fresh_topic()
    acknowledged: list[bytes] = []
    refused = 0
    ended = asyncio.Event()

    async def send(name: int) -> None:
        nonlocal refused
        number = 0
        while not ended.is_set():
            value = b"%d-%d" % (name, number)
            number += 1
            try:
                await producer.send(topic, key=b"a", value=value, timeout=2.0)
            except DependencyUnavailable:
                refused += 1
            else:
                acknowledged.append(value)
            await asyncio.sleep(0.01)

    senders = [asyncio.create_task(send(name)) for name in range(8)]
    await asyncio.sleep(1.0)
    await asyncio.to_thread(kafka_broker.kill)
    await asyncio.sleep(3.0)
    await asyncio.to_thread(kafka_broker.restart)
    before = len(acknowledged)
    async with asyncio.timeout(60):
        while len(acknowledged) < before + 100:
            await asyncio.sleep(0.05)
    ended.set()
    await asyncio.gather(*senders)
    assert refused
    values = [record.value for record in await read(settings, topic, len(acknowledged))]
    assert set(acknowledged) <= set(values)


def _recreations(registry: CollectorRegistry) -> float:
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "room_producer_recreations_total"
    )
