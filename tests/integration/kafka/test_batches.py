from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.kafka.batches import Batches, BatchHandler
from room_common.kafka.producer import Outgoing, Producer
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

FreshTopic = Callable[..., Awaitable[str]]
Start = Callable[[str, str, BatchHandler], Awaitable[Batches]]


@pytest.fixture
async def start_batches(settings: KafkaSettings) -> AsyncIterator[Start]:
    started: list[Batches] = []

    async def start(topic: str, group: str, handler: BatchHandler) -> Batches:
        batches = Batches(settings, CollectorRegistry())
        started.append(batches)
        batches.subscribe(topic, group, handler, max_records=10)
        await batches.start()
        return batches

    yield start
    await asyncio.gather(*(batches.stop() for batches in started))


async def test_any_record_reaches_the_handler(
    fresh_topic: FreshTopic, producer: Producer, start_batches: Start, committed: Any, until: Any, group: str
) -> None:
    """Headers and values that are no UTF-8, no key, no value: nothing of it may stop or lose a record."""
    topic = await fresh_topic()
    await producer.send_many(
        [
            Outgoing(topic, b"k", b"\xff\xfe", (("id", b"\xff\xfe"), ("content-type", b"application/json"))),
            Outgoing(topic, None, b"1"),
            Outgoing(topic, b"k", None, (("reply_to", b"\x80"), ("correlation_id", b"\x81"))),
            Outgoing(topic, b"k", b"{not json", (("content-type", b"application/json"),)),
        ]
    )
    seen: list[Record] = []

    async def handle(records: Sequence[Record]) -> None:
        seen.extend(records)

    batches = await start_batches(topic, group, handle)
    await until(lambda: len(seen) == 4)
    assert [record.value for record in seen] == [b"\xff\xfe", b"1", None, b"{not json"]
    assert [record.key for record in seen] == [b"k", None, b"k", b"k"]
    assert seen[0].headers[0] == ("id", b"\xff\xfe")
    assert batches.alive() is None
    assert batches.ready() is None
    await batches.stop()
    assert await committed(topic, group) == {0: 4}


@pytest.mark.parametrize(
    ("error", "reason"),
    [(DependencyUnavailable("postgresql", "connect"), "postgresql_connect"), (KeyError("x"), "handler_error")],
)
async def test_a_failing_batch_is_tried_again_and_nothing_passes_it(
    error: Exception,
    reason: str,
    fresh_topic: FreshTopic,
    fill: Any,
    start_batches: Start,
    committed: Any,
    until: Any,
    group: str,
) -> None:
    topic = await fresh_topic()
    seen: list[list[int]] = []
    failing = True

    async def handle(records: Sequence[Record]) -> None:
        seen.append([record.offset for record in records])
        if failing and records[0].offset >= 10:
            raise error

    await fill(topic, 30)
    batches = await start_batches(topic, group, handle)
    await until(lambda: len(seen) >= 4)
    assert batches.held == (reason,)
    assert batches.ready() is not None
    assert batches.alive() is None
    assert await committed(topic, group) == {0: 10}
    failing = False
    await until(lambda: seen[-1][-1] == 29)
    assert all(offsets == seen[1] for offsets in seen[1:-2])
    await until(lambda: not batches.held)
    await batches.stop()
    assert await committed(topic, group) == {0: 30}


@pytest.mark.parametrize("hanging", [False, True])
async def test_a_batch_that_a_stop_interrupts_comes_again(
    hanging: bool,
    fresh_topic: FreshTopic,
    fill: Any,
    start_batches: Start,
    committed: Any,
    until: Any,
    group: str,
) -> None:
    topic = await fresh_topic()
    began = asyncio.Event()
    seen: list[int] = []

    async def never(records: Sequence[Record]) -> None:
        began.set()
        if hanging:
            await asyncio.Event().wait()
        raise DependencyUnavailable("postgresql", "connect")

    async def handle(records: Sequence[Record]) -> None:
        seen.extend(record.offset for record in records)

    await fill(topic, 5)
    first = await start_batches(topic, group, never)
    await began.wait()
    await first.stop()
    assert await committed(topic, group) == {0: None}
    await start_batches(topic, group, handle)
    await until(lambda: len(seen) == 5)
    assert seen == list(range(5))


async def test_without_a_broker_start_may_be_repeated_and_stop_ends(
    settings: KafkaSettings, fresh_topic: FreshTopic, fill: Any, until: Any, group: str
) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9"})
    batches = Batches(nowhere, CollectorRegistry())

    async def handle(records: Sequence[Record]) -> None:
        pass

    batches.subscribe("topic", group, handle)
    for _ in range(2):
        with pytest.raises(DependencyUnavailable) as caught:
            await batches.start()
        assert caught.value.kind == "connect"
    assert batches.ready() is not None
    await batches.stop()


async def test_a_dead_coordinator_task_is_noticed(
    fresh_topic: FreshTopic, start_batches: Start, until: Any, group: str
) -> None:
    topic = await fresh_topic()

    async def handle(records: Sequence[Record]) -> None:
        pass

    batches = await start_batches(topic, group, handle)
    await until(lambda: batches.ready() is None)
    assert batches.alive() is None
    batches._subscriptions[0].subscriber.consumer._coordinator._coordination_task.cancel()
    await until(lambda: batches.alive() is not None)
