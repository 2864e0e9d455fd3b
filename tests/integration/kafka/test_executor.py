from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from room_common.errors import DependencyUnavailable
from room_common.kafka.execution import Limits
from room_common.kafka.executor import Executor
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

FreshTopic = Callable[..., Awaitable[str]]


class Room:
    """A handler that notes what it does and lets records wait at a gate."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    def gate(self, offset: int) -> asyncio.Event:
        return self.gates.setdefault(offset, asyncio.Event())

    async def handle(self, record: Record) -> None:
        self.began.append(record.offset)
        if record.offset in self.gates:
            await self.gates[record.offset].wait()
        self.ended.append(record.offset)


async def test_a_slow_record_delays_no_other_and_holds_the_commit_back(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    gate = room.gate(50)
    await fill(topic, 300)
    executor: Executor = await start_executor(topic, room.handle, group=group)
    await until(lambda: len(room.ended) == 299)
    await until(lambda: executor.counts.commits)
    assert await committed(topic, group) == {0: 50}
    assert executor.buffered == 1
    assert executor.span == 250
    gate.set()
    await until(lambda: executor.lag == 0 and executor.span == 0)
    await executor.stop()
    assert await committed(topic, group) == {0: 300}


async def test_equal_keys_never_overlap_and_others_do(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic = await fresh_topic()
    running: Counter[bytes | None] = Counter()
    most: Counter[bytes | None] = Counter()
    order: dict[bytes | None, list[int]] = {}
    widest = 0

    async def handle(record: Record) -> None:
        nonlocal widest
        running[record.key] += 1
        most[record.key] = max(most[record.key], running[record.key])
        widest = max(widest, running.total())
        order.setdefault(record.key, []).append(record.offset)
        await asyncio.sleep(0.002)
        running[record.key] -= 1

    await fill(topic, 200, key=lambda number: b"%d" % (number % 7))
    executor: Executor = await start_executor(topic, handle, group=group, dedup_key=lambda record: record.key)
    await until(lambda: executor.counts.completed == 200)
    assert set(most.values()) == {1}
    assert widest > 1
    assert all(offsets == sorted(offsets) for offsets in order.values())


async def test_records_without_a_key_run_side_by_side(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    gates = [room.gate(offset) for offset in range(16)]
    await fill(topic, 16)
    await start_executor(topic, room.handle, group=group, dedup_key=lambda record: record.key)
    await until(lambda: len(room.began) == 16)
    for gate in gates:
        gate.set()
    await until(lambda: len(room.ended) == 16)


async def test_what_is_buffered_and_the_span_stay_bounded(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    gate = room.gate(0)
    executors: list[Executor] = []
    buffered: list[int] = []

    async def handle(record: Record) -> None:
        buffered.append(executors[0].buffered)
        await room.handle(record)

    await fill(topic, 2000)
    limits = Limits(buffered=40, span=200, stop_drain=1.0)
    executor: Executor = await start_executor(topic, handle, group=group, limits=limits, prepare=executors.append)
    await until(lambda: executor.span >= 200 and executor.buffered == 1)
    for _ in range(2):  # it polls on
        polled = executor._last_poll
        await until(lambda last=polled: executor._last_poll > last)
    assert executor.span < 200 + 40  # a poll may bring what there was room for
    assert executor.alive() is None
    gate.set()
    await until(lambda: executor.counts.completed == 2000)
    assert max(buffered) <= 40


async def test_a_full_buffer_takes_in_more_once_a_sixteenth_of_it_is_free(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    gates = [room.gate(offset) for offset in range(200)]
    fetched = 0

    async def look(records: Sequence[Record]) -> set[tuple[int, int]]:
        nonlocal fetched
        fetched += len(records)
        return set()

    await fill(topic, 200)
    limits = Limits(buffered=64, concurrency=64, stop_drain=1.0)
    executor: Executor = await start_executor(topic, room.handle, group=group, limits=limits, already_done=look)
    await until(lambda: fetched == 64)
    for gate in gates[:3]:
        gate.set()
    await until(lambda: executor.counts.completed == 3)
    for _ in range(2):  # it polls on
        polled = executor._last_poll
        await until(lambda last=polled: executor._last_poll > last)
    assert fetched == 64
    gates[3].set()
    await until(lambda: fetched == 68)
    for gate in gates:
        gate.set()
    await until(lambda: executor.counts.completed == 200)


async def test_an_outage_holds_probes_and_goes_on_without_loss(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic = await fresh_topic(partitions=2)
    away = True
    calls, handled = 0, []

    async def handle(record: Record) -> None:
        nonlocal calls
        calls += 1
        if away:
            raise DependencyUnavailable("llm", "connect")
        handled.append((record.partition, record.offset))

    for partition in (0, 1):
        await fill(topic, 100, partition=partition)
    limits = Limits(concurrency=4, probe=0.05, stop_drain=1.0)
    executor: Executor = await start_executor(topic, handle, group=group, limits=limits)
    await until(lambda: executor.held)
    assert (executor.ready() or "").startswith("held: llm_connect (llm: connect")
    assert executor.alive() is None
    before, polled = calls, executor._last_poll
    await until(lambda: calls >= before + 5)  # probes, one after the other
    assert executor.in_flight <= 1
    await until(lambda: executor._last_poll > polled)
    assert executor.counts.handler_errors == 0
    assert executor.counts.completed == 0
    away = False
    await until(lambda: executor.counts.completed == 200)
    assert Counter(handled) == Counter((partition, offset) for partition in (0, 1) for offset in range(100))
    assert executor.held == ()
    await executor.stop()
    assert await committed(topic, group, 2) == {0: 100, 1: 100}


async def test_a_hold_from_outside_fetches_one_record_to_probe_with(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    gate = room.gate(0)
    await fill(topic, 50)
    executor: Executor = await start_executor(
        topic, room.handle, group=group, prepare=lambda one: one.hold("postgresql_connect")
    )
    await until(lambda: room.began)
    await asyncio.sleep(0.5)
    assert room.began == [0]
    assert executor.counts.received == 1
    gate.set()
    await until(lambda: executor.counts.completed == 50)
    assert executor.held == ()


async def test_a_hold_outlasts_a_rebalance(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(partitions=2), Room()
    first: Executor = await start_executor(
        topic, room.handle, group=group, prepare=lambda one: one.hold("dead_letters", probe=False)
    )
    await until(lambda: first.counts.rebalances)
    second: Executor = await start_executor(
        topic, room.handle, group=group, prepare=lambda one: one.hold("dead_letters", probe=False)
    )
    await until(lambda: first.counts.rebalances >= 2 and second.counts.rebalances)
    for partition in (0, 1):
        await fill(topic, 20, partition=partition)
    await asyncio.sleep(1.0)
    assert room.began == []
    assert first.counts.received + second.counts.received == 0
    first.release("dead_letters")
    second.release()
    await until(lambda: first.counts.completed + second.counts.completed == 40)


async def test_a_revocation_waits_for_running_records_and_commits_them(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic = await fresh_topic(partitions=2)
    began: Counter[tuple[int, int]] = Counter()
    slow = asyncio.Event()

    async def handle(record: Record) -> None:
        began[record.partition, record.offset] += 1
        if record.offset < 8:
            await slow.wait()

    for partition in (0, 1):
        await fill(topic, 200, partition=partition)
    limits = Limits(concurrency=16, buffered=400, revoke_drain=20.0, commit_interval=3600, stop_drain=1.0)
    first: Executor = await start_executor(topic, handle, group=group, limits=limits)
    await until(lambda: len(began) >= 16)
    second: Executor = await start_executor(topic, handle, group=group, limits=limits)
    await asyncio.sleep(2.0)  # the rebalance is under way
    slow.set()
    await until(lambda: second.counts.rebalances and len(began) == 400)
    assert set(began.values()) == {1}
    await asyncio.gather(first.stop(), second.stop())
    assert await committed(topic, group, 2) == {0: 200, 1: 200}


async def test_a_record_that_outlasts_the_drain_completes_nothing_and_runs_again(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic = await fresh_topic(partitions=2)
    began: Counter[tuple[int, int]] = Counter()
    slow = asyncio.Event()

    async def handle(record: Record) -> None:
        began[record.partition, record.offset] += 1
        if record.offset == 3 and began[record.partition, record.offset] == 1:
            await slow.wait()

    for partition in (0, 1):
        await fill(topic, 10, partition=partition)
    limits = Limits(revoke_drain=0.2, stop_drain=1.0)
    first: Executor = await start_executor(topic, handle, group=group, limits=limits)
    await until(lambda: first.counts.completed == 18)
    second: Executor = await start_executor(topic, handle, group=group, limits=limits)
    await until(lambda: second.counts.rebalances and first.counts.rebalances == 2)
    assert set((await committed(topic, group, 2)).values()) <= {3, 10}
    slow.set()
    await until(lambda: all(began[partition, offset] == 2 for partition in (0, 1) for offset in range(3, 10)))
    await asyncio.gather(first.stop(), second.stop())
    assert await committed(topic, group, 2) == {0: 10, 1: 10}


async def test_poison_is_put_aside_and_its_offset_completes(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic, poisoned = await fresh_topic(), []

    async def handle(record: Record) -> None:
        if record.offset % 10 == 3:
            raise ValueError(record.offset)

    async def on_poison(record: Record, error: Exception) -> None:
        poisoned.append((record.offset, type(error)))

    await fill(topic, 30)
    executor: Executor = await start_executor(
        topic, handle, group=group, on_poison=on_poison, limits=Limits(retry_pause=0.01, stop_drain=1.0)
    )
    await until(lambda: executor.counts.completed == 30)
    assert sorted(poisoned) == [(3, ValueError), (13, ValueError), (23, ValueError)]
    assert executor.counts.handler_errors == 9
    assert executor.counts.poisoned == 3
    await executor.stop()
    assert await committed(topic, group) == {0: 30}


async def test_what_was_done_before_is_not_handled_again(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, committed: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    answers: list[BaseException] = [DependencyUnavailable("postgresql", "connect"), RuntimeError("unforeseen")]
    asked: list[int] = []

    async def already_done(records: Sequence[Record]) -> set[tuple[int, int]]:
        asked.extend(record.offset for record in records)
        if isinstance(answers[0], DependencyUnavailable):
            raise answers.pop(0)
        return {(record.partition, record.offset) for record in records if record.offset % 2}

    await fill(topic, 60)
    executor: Executor = await start_executor(topic, room.handle, group=group, already_done=already_done)
    await until(lambda: executor.counts.completed == 60)
    assert sorted(room.ended) == list(range(0, 60, 2))
    assert set(asked) == set(range(60))
    assert executor.held == ()
    await executor.stop()
    assert await committed(topic, group) == {0: 60}


@pytest.mark.apache
async def test_lost_offsets_are_counted(
    settings: KafkaSettings, fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    await fill(topic, 10)
    first: Executor = await start_executor(topic, room.handle, group=group)
    await until(lambda: first.counts.completed == 10)
    assert first.offsets_lost == 0
    await first.stop()
    await fill(topic, 20)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=25)})
    finally:
        await admin.close()
    second: Executor = await start_executor(topic, room.handle, group=group)
    await until(lambda: second.counts.completed == 5)
    await until(lambda: second.offsets_lost)
    assert second.offsets_lost == 15


async def test_a_client_whose_tasks_died_is_replaced(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str
) -> None:
    topic, room = await fresh_topic(), Room()
    executor: Executor = await start_executor(topic, room.handle, group=group)
    await until(lambda: executor.counts.rebalances)
    dying = executor._consumer
    assert dying is not None
    dying._coordinator._coordination_task.cancel()
    await until(lambda: executor._consumer not in (None, dying) and executor.counts.rebalances == 2)
    await fill(topic, 10)
    await until(lambda: executor.counts.completed == 10)
    assert executor.counts.recreations == 1
    assert executor.alive() is None
