"""Producers, executors and batch subscribers against the broker of the run, stopped at the end of each test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from prometheus_client import CollectorRegistry

from room_common.kafka.execution import Handling, Limits
from room_common.kafka.executor import Executor
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings

Fill = Callable[..., Awaitable[list[RecordMetadata]]]
Committed = Callable[..., Awaitable[dict[int, int | None]]]
Until = Callable[..., Awaitable[None]]


class StartExecutor(Protocol):
    """The fixture ``start_executor``."""

    async def __call__(
        self,
        topic: str,
        handle: Callable[[Record], Awaitable[None]],
        *,
        group: str,
        limits: Limits | None = None,
        on_poison: Callable[[Record, Exception], Awaitable[None]] | None = None,
        dedup_key: Callable[[Record], bytes | None] | None = None,
        already_done: Callable[[Sequence[Record]], Awaitable[set[tuple[int, int]]]] | None = None,
        prepare: Callable[[Executor], None] | None = None,
    ) -> Executor: ...


@pytest.fixture
def settings(kafka_bootstrap: str, kafka_idempotence: bool) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=kafka_bootstrap,
        idempotence=kafka_idempotence,
        replication_factor=1,
        min_insync_replicas=1,
        request_timeout_ms=3_000,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def group() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def producer(settings: KafkaSettings, registry: CollectorRegistry) -> AsyncIterator[Producer]:
    producer = Producer(settings, registry)
    await producer.start()
    yield producer
    await producer.stop()


@pytest.fixture
def fill(producer: Producer) -> Fill:
    """``await fill(topic, n, key=..., partition=0)`` sends n records; their values are their numbers."""

    async def send(
        topic: str, count: int, *, key: Callable[[int], bytes | None] = lambda _: None, partition: int | None = 0
    ) -> list[RecordMetadata]:
        results = await producer.send_many(
            [Outgoing(topic, key(number), b"%d" % number, partition=partition) for number in range(count)]
        )
        return [result for result in results if isinstance(result, RecordMetadata)]

    return send


@pytest.fixture
async def start_executor(settings: KafkaSettings, registry: CollectorRegistry) -> AsyncIterator[StartExecutor]:
    started: list[Executor] = []

    async def no_poison(_: Record, error: Exception) -> None:
        raise AssertionError("no poison was expected") from error

    async def start(
        topic: str,
        handle: Callable[[Record], Awaitable[None]],
        *,
        group: str,
        limits: Limits | None = None,
        on_poison: Callable[[Record, Exception], Awaitable[None]] | None = None,
        dedup_key: Callable[[Record], bytes | None] | None = None,
        already_done: Callable[[Sequence[Record]], Awaitable[set[tuple[int, int]]]] | None = None,
        prepare: Callable[[Executor], None] | None = None,
    ) -> Executor:
        executor = Executor(
            settings,
            registry if not started else CollectorRegistry(),
            group=group,
            topics=[topic],
            handling=Handling(handle, on_poison or no_poison, dedup_key, already_done),
            limits=limits or Limits(stop_drain=1.0, probe=0.2),
        )
        started.append(executor)
        if prepare is not None:
            prepare(executor)
        await executor.start()
        return executor

    yield start
    await asyncio.gather(*(executor.stop() for executor in started))


@asynccontextmanager
async def _reader(settings: KafkaSettings, group: str) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@pytest.fixture
def committed(settings: KafkaSettings) -> Committed:
    """``await committed(topic, group, partitions=1)`` reads the group's commits as a bystander."""

    async def read(topic: str, group: str, partitions: int = 1) -> dict[int, int | None]:
        async with _reader(settings, group) as consumer:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(places)
            return {tp.partition: await consumer.committed(tp) for tp in places}

    return read


@pytest.fixture
def until() -> Until:
    """``await until(lambda: ...)`` waits for a condition; the test's own timeout ends it otherwise."""

    async def wait(condition: Callable[[], object], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)

    return wait
