"""Setting a group back in time, and fencing every worker: ``room recover``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from room_common.contracts import topics
from room_common.errors import Refused
from room_common.kafka.rewind import Rewound, rewind
from room_common.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration
HOUR_MS = 3_600_000


# The embedded broker knows no offsets by time: it goes back to the oldest record.
@pytest.mark.apache
async def test_a_group_goes_back_and_never_forward(
    kafka_bootstrap: str, fresh_topic: Callable[..., Awaitable[str]]
) -> None:
    topic = await fresh_topic(partitions=2)
    settings = KafkaSettings(bootstrap_servers=kafka_bootstrap, replication_factor=1, min_insync_replicas=1)
    now = round(time.time() * 1000)
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    for number in range(10):
        await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=now - (10 - number) * HOUR_MS)
    await producer.stop()
    group = f"group-{topic}"
    first = TopicPartition(topic, 0)

    async def committed(offset: int | None) -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka_bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([first])
        try:
            if offset is not None:
                await consumer.commit({first: offset})
            found: int | None = await consumer.committed(first)
            return found
        finally:
            await consumer.stop()

    async def back(hours: float, *, dry_run: bool = False) -> list[Rewound]:
        since = datetime.fromtimestamp((now - hours * HOUR_MS) / 1000, UTC)
        return await rewind(settings, group, [topic, "no.such.topic"], since, dry_run=dry_run)

    await committed(10)
    assert await back(3.5, dry_run=True) == [Rewound(topic, 0, 10, 7)]
    assert await committed(None) == 10
    assert await back(3.5) == [Rewound(topic, 0, 10, 7)]
    assert await committed(None) == 7
    assert await back(1.5) == []
    assert await back(0) == []


@pytest.mark.apache
async def test_a_group_with_members_is_left_alone(
    kafka_bootstrap: str, fresh_topic: Callable[..., Awaitable[str]]
) -> None:
    topic = await fresh_topic()
    settings = KafkaSettings(bootstrap_servers=kafka_bootstrap, replication_factor=1, min_insync_replicas=1)
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"x")
    await producer.stop()
    member = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka_bootstrap, group_id=f"group-{topic}", enable_auto_commit=False
    )
    await member.start()
    try:
        await member.getmany(timeout_ms=3000)
        with pytest.raises(Refused) as raised:
            await rewind(settings, f"group-{topic}", [topic], datetime.fromtimestamp(0, UTC))
        assert raised.value.reason == "group_active"
    finally:
        await member.stop()


def test_the_command_knows_the_groups_of_the_services() -> None:
    from room_matcher.app import GROUP, SLOW_GROUP

    assert topics.INTAKE_GROUPS[topics.WEBHOOKS_RAW] == GROUP
    assert topics.INTAKE_GROUPS[topics.WEBHOOKS_SLOW] == SLOW_GROUP
