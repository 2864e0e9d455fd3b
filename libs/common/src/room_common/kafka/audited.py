"""A topic as its consumer group stands in it, looked at from outside: without joining the group, committing nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from room_common.errors import DependencyUnavailable
from room_common.kafka.consumers import know_topics, observing_consumer
from room_common.kafka.failures import failure_kind
from room_common.kafka.records import Record, from_consumer
from room_common.kafka.settings import KafkaSettings

Offsets = Mapping[int, int]
"""An offset for each partition."""

_CLIENT: Final = "room-audit"
_ASK_SECONDS: Final = 30.0
_POLL_MS: Final = 500
_SILENT_POLLS: Final = 20
_RECORDS: Final = 500
"""Records that are held at once."""


class AuditedTopic:
    """Everything here raises ``DependencyUnavailable`` when Kafka does not answer in time."""

    def __init__(
        self, settings: KafkaSettings, consumer: AIOKafkaConsumer, topic: str, partitions: Sequence[int]
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._consumer = consumer
        self._places = [TopicPartition(topic, number) for number in partitions]

    async def committed(self) -> Offsets:
        """Where the group goes on; partitions of which it has finished nothing are left out."""
        async with _bounded():
            found = await asyncio.gather(*(self._consumer.committed(tp) for tp in self._places))
        return {tp.partition: offset for tp, offset in zip(self._places, found, strict=True) if offset is not None}

    async def beginnings(self) -> Offsets:
        """The oldest record of each partition."""
        return await self._offsets(self._consumer.beginning_offsets)

    async def ends(self) -> Offsets:
        """Behind the newest record of each partition."""
        return await self._offsets(self._consumer.end_offsets)

    async def since(self, unix_ms: int) -> Offsets:
        """The first record written at or after that time; partitions without one are left out."""
        async with _bounded():
            found = await self._consumer.offsets_for_times(dict.fromkeys(self._places, max(0, unix_ms)))
        return {tp.partition: place.offset for tp, place in found.items() if place is not None}

    async def read(self, starts: Offsets, ends: Offsets) -> AsyncGenerator[Sequence[Record], None]:
        """Every record from ``starts`` up to, not including, ``ends``, a few hundred at a time, in order by partition.

        Partitions that are missing in one of them are not read. Records the broker has deleted meanwhile are passed
        over. Each read has a consumer of its own, so that one may begin while another one goes on.
        """
        left = {
            TopicPartition(self.topic, number): ends[number]
            for number, start in starts.items()
            if start < ends.get(number, 0)
        }
        if not left:
            return
        async with AsyncExitStack() as stack:
            async with _bounded():
                consumer = await stack.enter_async_context(observing_consumer(self._settings, client_id=_CLIENT))
                await know_topics(consumer, [self.topic])
            consumer.assign(list(left))
            for tp in left:
                consumer.seek(tp, starts[tp.partition])
            silent = 0
            while left:
                try:
                    async with _bounded():
                        batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS)
                except OffsetOutOfRangeError:
                    await self._pass_over_deleted(consumer, left)
                    continue
                silent = 0 if batches else silent + 1
                if silent > _SILENT_POLLS:
                    raise DependencyUnavailable("kafka", "silent")
                for tp, messages in batches.items():
                    if tp in left:
                        yield [from_consumer(message) for message in messages if message.offset < left[tp]]
                await _leave_finished(consumer, left)

    async def _pass_over_deleted(self, consumer: AIOKafkaConsumer, left: Mapping[TopicPartition, int]) -> None:
        beginnings = await self.beginnings()
        async with _bounded():
            for tp in left:
                if await consumer.position(tp) < beginnings[tp.partition]:
                    consumer.seek(tp, beginnings[tp.partition])

    async def _offsets(
        self, ask: Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
    ) -> Offsets:
        async with _bounded():
            found = await ask(self._places)
        return {tp.partition: offset for tp, offset in found.items()}


@asynccontextmanager
async def audited(settings: KafkaSettings, topic: str, group: str) -> AsyncIterator[AuditedTopic]:
    """Open a topic as ``group`` reads it. Raises ``DependencyUnavailable``."""
    async with AsyncExitStack() as stack:
        async with _bounded():
            consumer = await stack.enter_async_context(observing_consumer(settings, client_id=_CLIENT, group=group))
            await know_topics(consumer, [topic])
        yield AuditedTopic(settings, consumer, topic, sorted(consumer.partitions_for_topic(topic) or ()))


async def _leave_finished(consumer: AIOKafkaConsumer, left: dict[TopicPartition, int]) -> None:
    async with _bounded():
        for tp in list(left):
            if await consumer.position(tp) >= left[tp]:
                del left[tp]
                consumer.pause(tp)


@asynccontextmanager
async def _bounded() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            yield
    except OffsetOutOfRangeError:
        raise
    except (TimeoutError, KafkaError, OSError) as error:
        raise DependencyUnavailable("kafka", failure_kind(error)) from error
