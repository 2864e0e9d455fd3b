from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from room_common.kafka.execution import Limits
from room_common.kafka.executor import Executor
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings
from room_testing.parts import Broker

pytestmark = pytest.mark.integration

FreshTopic = Callable[..., Awaitable[str]]
MEMBER = Path(__file__).with_name("member.py")
PARTITIONS = 4


@asynccontextmanager
async def member(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, str(MEMBER), *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def handled(path: Path) -> list[tuple[int, int]]:
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(partition), int(offset)) for partition, offset in lines]


@pytest.mark.chaos
async def test_a_killed_member_loses_nothing_and_never_committed_too_much(
    settings: KafkaSettings, fresh_topic: FreshTopic, fill: Any, committed: Any, until: Any, group: str, tmp_path: Path
) -> None:
    topic = await fresh_topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        await fill(topic, 400, partition=partition)
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(400)}
    path = tmp_path / "handled"
    arguments = (settings.bootstrap_servers, topic, group, str(path))
    for goal in (100, 500, 900):
        async with member(*arguments) as process:
            await until(lambda goal=goal: len(set(handled(path))) >= goal)
            process.kill()
            await process.wait()
            done = set(handled(path))
            for partition, offset in (await committed(topic, group, PARTITIONS)).items():
                assert {(partition, number) for number in range(offset or 0)} <= done
    async with member(*arguments):
        await until(lambda: set(handled(path)) == everything)
    most = 8 * 3 + 3 * 512  # in flight, or finished after the last commit
    assert len(handled(path)) <= len(everything) + most


@pytest.mark.apache
async def test_a_restarted_broker_costs_no_record(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str, kafka_broker: Broker
) -> None:
    topic, seen = await fresh_topic(partitions=2), set()

    async def handle(record: Record) -> None:
        seen.add((record.partition, record.offset))
        await asyncio.sleep(0.01)

    for partition in (0, 1):
        await fill(topic, 400, partition=partition)
    executor: Executor = await start_executor(topic, handle, group=group, limits=Limits(concurrency=4, stop_drain=1.0))
    await until(lambda: len(seen) > 50)
    await asyncio.to_thread(kafka_broker.kill)
    await asyncio.sleep(2.0)
    assert executor.alive() is None
    await asyncio.to_thread(kafka_broker.restart)
    for partition in (0, 1):
        await fill(topic, 20, partition=partition)
    await until(lambda: len(seen) >= 840)
    await until(lambda: executor.lag == 0 and executor.span == 0)
    assert executor.alive() is None


async def test_stop_ends_with_the_broker_frozen(
    fresh_topic: FreshTopic, fill: Any, start_executor: Any, until: Any, group: str, kafka_broker: Broker
) -> None:
    topic, seen = await fresh_topic(), []

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    await fill(topic, 10)
    executor: Executor = await start_executor(topic, handle, group=group)
    await until(lambda: len(seen) == 10)
    kafka_broker.pause()
    async with asyncio.timeout(executor.stop_timeout):
        await executor.stop()
