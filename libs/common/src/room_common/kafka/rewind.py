"""Setting a consumer group back in time, while none of its members is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalGenerationError, KafkaError, UnknownMemberIdError

from room_common.errors import DependencyUnavailable, Refused
from room_common.kafka.admin import describe_topics
from room_common.kafka.consumers import stop_consumer
from room_common.kafka.failures import failure_kind
from room_common.kafka.security import client_options
from room_common.kafka.settings import KafkaSettings

_LIMIT: Final = 60.0
_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Rewound:
    """A partition that was set back: from where (None: nothing was committed) to where."""

    topic: str
    partition: int
    before: int | None
    after: int


async def rewind(
    settings: KafkaSettings, group: str, topics: Sequence[str], since: datetime, *, dry_run: bool = False
) -> list[Rewound]:
    """Let ``group`` read these topics again from the first record of ``since`` on. Never forward.

    Raises ``Refused('group_active')`` while a member is there, whose own commits would win, and
    ``DependencyUnavailable``.
    """
    existing = await describe_topics(settings)
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        if topic in existing
        for number in range(existing[topic].partitions)
    ]
    consumer = AIOKafkaConsumer(
        client_id="room-rewind", group_id=group, enable_auto_commit=False, **client_options(settings)
    )
    try:
        async with asyncio.timeout(_LIMIT):
            await consumer.start()
            consumer.assign(partitions)
            found = await consumer.offsets_for_times({one: round(since.timestamp() * 1000) for one in partitions})
            changes = {}
            rewound = []
            for partition in partitions:
                record = found.get(partition)
                if record is None:  # nothing came since then
                    continue
                before = await consumer.committed(partition)
                if before is not None and before <= record.offset:
                    continue
                changes[partition] = record.offset
                rewound.append(Rewound(partition.topic, partition.partition, before, record.offset))
            if changes and not dry_run:
                await consumer.commit(changes)
    except (UnknownMemberIdError, IllegalGenerationError, CommitFailedError):
        raise Refused("group_active", f"the consumer group {group!r} has members: stop that service first") from None
    except (KafkaError, OSError, TimeoutError) as error:
        raise DependencyUnavailable("kafka", failure_kind(error)) from error
    finally:
        await stop_consumer(consumer, _STOP_SECONDS)
    return rewound
