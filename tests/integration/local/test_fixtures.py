"""The fixtures that other tests stand on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg
import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from room_testing.parts import Broker, Parts

pytestmark = pytest.mark.integration


def test_each_database_is_fresh_and_has_the_schema(room_parts: Parts, database_dsn: str) -> None:
    other = room_parts.create_database()
    with psycopg.connect(database_dsn) as one, psycopg.connect(other) as two:
        one.execute("create table only_here ()")
        one.commit()
        assert one.execute("select to_regclass('event_backlog') is not null").fetchone() == (True,)
        assert two.execute("select to_regclass('only_here')").fetchone() == (None,)
    room_parts.drop_database(other)


def test_an_empty_database_has_no_table(empty_database_dsn: str) -> None:
    with psycopg.connect(empty_database_dsn) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
    assert tables == (0,)


def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


async def test_a_fresh_topic_takes_and_gives_a_record(
    kafka_bootstrap: str, fresh_topic: Callable[..., Awaitable[str]]
) -> None:
    topic = await fresh_topic(partitions=2)
    await _send(kafka_bootstrap, topic, b"hello")
    assert await _first(kafka_bootstrap, topic) == b"hello"


@pytest.mark.apache
async def test_a_killed_broker_comes_back_with_its_records(
    kafka_broker: Broker, fresh_topic: Callable[..., Awaitable[str]]
) -> None:
    topic = await fresh_topic()
    await _send(kafka_broker.bootstrap, topic, b"kept")
    kafka_broker.kill()
    kafka_broker.restart()
    assert await _first(kafka_broker.bootstrap, topic) == b"kept"


@pytest.mark.apache
async def test_three_brokers_go_on_without_one(
    kafka_cluster: Broker, fresh_topic: Callable[..., Awaitable[str]]
) -> None:
    topic = await fresh_topic(bootstrap=kafka_cluster.bootstrap, replicas=3)
    kafka_cluster.kill(1)
    await _send(kafka_cluster.bootstrap, topic, b"kept")
    assert await _first(kafka_cluster.bootstrap, topic) == b"kept"


async def _send(bootstrap: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()


async def _first(bootstrap: str, topic: str) -> bytes:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        record = await consumer.getone()
        assert isinstance(record.value, bytes)
        return record.value
    finally:
        await consumer.stop()
