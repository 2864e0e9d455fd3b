"""What a group member tells about itself: lag, progress, offsets that were lost. Errors here never disturb the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from room_common.kafka.consumers import Standing, standings
from room_common.kafka.failures import failure_kind
from room_common.kafka.metrics import kafka_metrics

_INTERVAL: Final = 5.0
_LIMIT: Final = 5.0
_SETTLE: Final = 10.0

log = structlog.get_logger(__name__)


class GroupObserver:
    """Looks at the broker's side of an assignment every few seconds.

    A broker that deleted records before the group read them makes the client jump to the oldest one there is, without
    an error. That shows in two places: at the start of an assignment as a commit older than the oldest record, later
    as a gap between two records.
    """

    def __init__(self, registry: CollectorRegistry, group: str) -> None:
        self.metrics = kafka_metrics(registry)
        self.lag = 0
        self.lost = 0
        self._group = group
        self._standings: dict[TopicPartition, Standing] = {}
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._gaps: list[tuple[TopicPartition, int, int]] = []
        self._began = 0.0
        self._asked = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether the standings of this assignment are known, or no longer waited for.

        The first commit waits for that: it would overwrite what lost offsets are told by.
        """
        return len(self._standings) == len(self._partitions) or time.monotonic() - self._began > _SETTLE

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """A new assignment."""
        self.forget()
        self._partitions = frozenset(partitions)
        self._began = time.monotonic()
        self._asked.set()

    def forget(self) -> None:
        """The assignment ended: others report on its partitions now."""
        for tp in self._partitions:
            for gauge in (self.metrics.lag, self.metrics.progress):
                try:
                    gauge.remove(tp.topic, str(tp.partition), self._group)
                except KeyError:
                    pass
        self._partitions = frozenset()
        self._standings = {}
        self._gaps = []
        self.lag = 0

    def missed(self, tp: TopicPartition, start: int, end: int) -> None:
        """Offsets from ``start`` up to, not including, ``end`` never came."""
        self._gaps.append((tp, start, end))
        self._asked.set()

    def progressed(self, tp: TopicPartition) -> None:
        """A record was completed."""
        self.metrics.progress.labels(tp.topic, str(tp.partition), self._group).set_to_current_time()

    async def wait(self) -> None:
        """Until it is time to look, or something happened that is worth a look."""
        try:
            async with asyncio.timeout(_INTERVAL):
                await self._asked.wait()
        except TimeoutError:
            pass
        self._asked.clear()

    async def look(self, consumer: AIOKafkaConsumer, watermark: Callable[[TopicPartition], int | None]) -> None:
        """Refresh the figures. Bounded in time; failures are logged and tried again at the next look."""
        partitions = self._partitions
        try:
            await self._inspect(consumer, partitions)
            await self._account_gaps(consumer, partitions)
            async with asyncio.timeout(_LIMIT):
                ends = await consumer.end_offsets(list(partitions)) if partitions else {}
        except (KafkaError, OSError, TimeoutError) as error:
            log.info("offsets can't be read", group=self._group, kind=failure_kind(error))
            self.metrics.up.set(0)
            return
        if partitions:
            self.metrics.up.set(1)
        if partitions is not self._partitions:
            return
        self.lag = 0
        for tp, end in ends.items():
            mark = watermark(tp)
            newest = max(end, _highwater(consumer, tp))
            lag = max(0, newest - (self._standings[tp].start if mark is None else mark))
            self.lag += lag
            self.metrics.lag.labels(tp.topic, str(tp.partition), self._group).set(lag)
            if not lag:
                self.progressed(tp)

    async def _inspect(self, consumer: AIOKafkaConsumer, partitions: frozenset[TopicPartition]) -> None:
        if len(self._standings) == len(partitions):
            return
        found = await standings(consumer, partitions, _LIMIT)
        if partitions is self._partitions:
            self._standings = found
            for tp, standing in found.items():
                self._count_lost(tp, standing.lost)

    async def _account_gaps(self, consumer: AIOKafkaConsumer, partitions: frozenset[TopicPartition]) -> None:
        gaps = [gap for gap in self._gaps if gap[0] in partitions]
        if not gaps:
            return
        async with asyncio.timeout(_LIMIT):
            beginnings = await consumer.beginning_offsets([tp for tp, _, _ in gaps])
        self._gaps = [gap for gap in self._gaps if gap not in gaps]
        for tp, start, end in gaps:
            self._count_lost(tp, min(end, beginnings[tp]) - start)

    def _count_lost(self, tp: TopicPartition, offsets: int) -> None:
        if offsets > 0:
            self.lost += offsets
            self.metrics.offsets_lost.labels(tp.topic, self._group).inc(offsets)
            log.error("offsets were lost", group=self._group, topic=tp.topic, partition=tp.partition, offsets=offsets)


def _highwater(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int:
    """The end as the last fetch told it: Tansu's answer to the question itself lacks the rest of the last batch."""
    return (consumer.highwater(tp) or 0) if tp in consumer.assignment() else 0
