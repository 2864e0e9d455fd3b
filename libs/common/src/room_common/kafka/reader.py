"""Reading single records back by their place, outside of any group, bounded in records, bytes and time.

Records may be gone (retention), and another record may be in a place (a topic made again): whoever reads compares ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from room_common.errors import DependencyUnavailable
from room_common.kafka.consumers import know_topics, observing_consumer
from room_common.kafka.failures import failure_kind
from room_common.kafka.records import Record, from_consumer
from room_common.kafka.settings import KafkaSettings

READ_SECONDS: Final = 10.0
FOUND_SECONDS: Final = 20.0
AT_ONCE: Final = 4
"""Reads of one process at the same time; each has a connection of its own. Others wait."""

MAX_PLACES: Final = 1000
SCANNED: Final = 50_000
"""Records that one search looks at, at most."""

_POLL_MS: Final = 500
_SILENT_POLLS: Final = 4
"""Polls in a row without a record after which what was asked for is taken to be gone."""

_NEAR: Final = 50
"""Offsets up to this far ahead are read through: that costs less than asking for them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record was put."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class _Wanted:
    """What is still to be read of one partition, lowest offset first."""

    offsets: list[int]
    found: dict[int, Record] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        while self.offsets and self.offsets[0] < record.offset:
            self.offsets.pop(0)
        if self.offsets and self.offsets[0] == record.offset:
            self.found[self.offsets.pop(0)] = record


class Reader:
    """Reads records by their place. Every read has its own consumer, which belongs to no group and commits nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, place: Place, *, seconds: float = READ_SECONDS) -> Record | None:
        """The record in ``place``, None when there is none (any more). Raises ``DependencyUnavailable``."""
        return (await self.read_many([place], seconds=seconds)).get(place)

    async def read_many(self, places: Iterable[Place], *, seconds: float = READ_SECONDS) -> dict[Place, Record]:
        """The records in those of ``places`` that have one; at most ``MAX_PLACES`` are looked at.

        Raises ``DependencyUnavailable``, also when ``seconds`` were not enough.
        """
        wanted: dict[TopicPartition, _Wanted] = {}
        for place in sorted(set(list(places)[:MAX_PLACES]), key=lambda place: place.offset):
            wanted.setdefault(TopicPartition(place.topic, place.partition), _Wanted([])).offsets.append(place.offset)
        if not wanted:
            return {}
        async with self._bounded(seconds), self._consumer() as consumer:
            await know_topics(consumer, {tp.topic for tp in wanted})
            beginnings = await consumer.beginning_offsets(list(wanted))
            for tp, of_partition in wanted.items():
                of_partition.offsets = [offset for offset in of_partition.offsets if offset >= beginnings[tp]]
            await self._collect(consumer, wanted)
        return {
            Place(tp.topic, tp.partition, offset): record
            for tp, of_partition in wanted.items()
            for offset, record in of_partition.found.items()
        }

    async def find(
        self,
        topic: str,
        matches: Callable[[Record], bool],
        *,
        since_ms: int,
        partitions: Sequence[int] | None = None,
        seconds: float = FOUND_SECONDS,
    ) -> Record | None:
        """The first record that ``matches`` among those written since a time (Unix milliseconds), None where none does.

        Looks at ``SCANNED`` records at most, oldest first in each partition. Raises ``DependencyUnavailable``, also
        when ``seconds`` were not enough.
        """
        async with self._bounded(seconds), self._consumer() as consumer:
            await know_topics(consumer, [topic])
            known = sorted(consumer.partitions_for_topic(topic) or ())
            places = [TopicPartition(topic, number) for number in known if partitions is None or number in partitions]
            if not places:
                return None
            starts = await consumer.offsets_for_times(dict.fromkeys(places, max(0, since_ms)))
            begun = [tp for tp in places if starts.get(tp) is not None]
            if not begun:
                return None
            consumer.assign(begun)
            for tp in begun:
                consumer.seek(tp, starts[tp].offset)
            return await self._search(consumer, matches)

    async def _search(self, consumer: AIOKafkaConsumer, matches: Callable[[Record], bool]) -> Record | None:
        looked_at = silent = 0
        while looked_at < SCANNED and silent < _SILENT_POLLS:
            batches = await consumer.getmany(timeout_ms=_POLL_MS)
            silent = 0 if batches else silent + 1
            for messages in batches.values():
                looked_at += len(messages)
                for message in messages:
                    record = from_consumer(message)
                    if matches(record):
                        return record
        return None

    async def _collect(self, consumer: AIOKafkaConsumer, wanted: dict[TopicPartition, _Wanted]) -> None:
        silent = 0
        self._assign(consumer, wanted)
        while any(of_partition.offsets for of_partition in wanted.values()) and silent < _SILENT_POLLS:
            try:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
            except OffsetOutOfRangeError as error:
                for tp in error.args[0]:
                    wanted[tp].offsets.clear()
                self._assign(consumer, wanted)
                continue
            silent = 0 if batches else silent + 1
            for tp, messages in batches.items():
                self._take(consumer, tp, wanted[tp], [from_consumer(message) for message in messages])
            if any(not wanted[tp].offsets for tp in batches):
                self._assign(consumer, wanted)

    @staticmethod
    def _take(consumer: AIOKafkaConsumer, tp: TopicPartition, wanted: _Wanted, records: Sequence[Record]) -> None:
        for record in records:
            wanted.take(record)
        if wanted.offsets and wanted.offsets[0] > records[-1].offset + _NEAR:
            consumer.seek(tp, wanted.offsets[0])

    @staticmethod
    def _assign(consumer: AIOKafkaConsumer, wanted: dict[TopicPartition, _Wanted]) -> None:
        """Fetch only from partitions of which something is wanted."""
        left = [tp for tp, of_partition in wanted.items() if of_partition.offsets]
        consumer.assign(left)
        for tp in left:
            consumer.seek(tp, wanted[tp].offsets[0])

    @asynccontextmanager
    async def _bounded(self, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds), self._slots:
                yield
        except (TimeoutError, KafkaError, OSError) as error:
            raise DependencyUnavailable("kafka", failure_kind(error)) from None

    def _consumer(self) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
        return observing_consumer(self._settings, client_id="room-reader")
