"""From fetched records to queued work: bookkeeping, the look-up of what was done before, the lane of each record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from aiokafka import TopicPartition

from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Work
from room_common.kafka.dispatch import Dispatcher
from room_common.kafka.diversion import Diversion
from room_common.kafka.execution import Handling, Limits
from room_common.kafka.observer import GroupObserver
from room_common.kafka.offsets import Assignment
from room_common.kafka.records import Record, from_consumer

log = structlog.get_logger(__name__)


class Intake:
    """Records that came and are not over; those whose look-up is still to be made wait here.

    ``on_over`` completes a work that needs no handling, ``on_error`` is told of a look-up that failed unforeseen.
    """

    def __init__(
        self,
        group: str,
        handling: Handling,
        limits: Limits,
        *,
        assignment: Assignment[TopicPartition],
        observer: GroupObserver,
        dispatcher: Dispatcher,
        on_over: Callable[[Work, bool], None],
        on_error: Callable[[str, bool], None],
    ) -> None:
        self._group = group
        self._handling = handling
        self._limits = limits
        self._assignment = assignment
        self._observer = observer
        self._dispatcher = dispatcher
        self._on_over = on_over
        self._on_error = on_error
        self._diversion = Diversion(
            handling,
            share=limits.share,
            retry_seconds=limits.probe,
            on_offer=self._offer,
            on_over=on_over,
            on_error=on_error,
        )
        self._in_hand: dict[Work, None] = {}
        self._unchecked: list[Work] = []
        self._next_look_up = 0.0
        self._hold: str | None = None

    @property
    def waits(self) -> bool:
        """Whether records wait for their look-up; no more should be taken in then."""
        return bool(self._unchecked)

    @property
    def oldest(self) -> Work | None:
        """The work that came first of those that are not over."""
        return next(iter(self._in_hand), None)

    def over(self, work: Work) -> None:
        self._in_hand.pop(work, None)
        self._diversion.over(work)

    def drop_waiting(self) -> None:
        self._unchecked.clear()
        self._diversion.drop_waiting()

    def keep_only(self, works: Iterable[Work]) -> None:
        """The assignment ended; only these still run."""
        self._unchecked.clear()
        kept = dict.fromkeys(works)
        for work in self._in_hand:
            if work not in kept:
                self._diversion.over(work)
        self._in_hand = kept

    @property
    def congested(self) -> set[tuple[str, int]]:
        """Partitions, as (topic, partition), that should bring nothing for a moment."""
        return self._diversion.congested()

    def press(self) -> None:
        """The buffer is full."""
        self._diversion.press()

    async def drain(self, seconds: float) -> None:
        """Let what is being diverted end; what still has to be is dropped."""
        await self._diversion.drain(seconds)

    async def take(self, batches: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """Take fetched records in and queue those that need handling."""
        now = time.monotonic()
        for tp, batch in batches.items():
            for message in batch:
                received = self._assignment.receive(tp, message.offset)
                if received is None:
                    continue
                if received.missing:
                    self._observer.missed(tp, message.offset - received.missing, message.offset)
                if received.rewound:
                    log.error("the log began anew", group=self._group, topic=tp.topic, partition=tp.partition)
                work = Work(from_consumer(message), received.progress, now)
                self._in_hand[work] = None
                self._unchecked.append(work)
        await self.look_up()

    async def look_up(self) -> None:
        """Complete what was done before and queue the rest. While the look-up's store is away, all of it waits."""
        works = list(self._unchecked)
        if not works or time.monotonic() < self._next_look_up:
            return
        done = await self._ask([work.record for work in works])
        if done is None:
            self._next_look_up = time.monotonic() + self._limits.probe
            return
        if self._hold is not None:
            self._dispatcher.release(self._hold)
            self._hold = None
        self._unchecked = []
        for work in works:
            if not work.progress.alive or not self._dispatcher.open:
                self.over(work)
            elif (work.record.partition, work.record.offset) in done:
                self._on_over(work, True)
            elif not self._diversion.takes(work):
                self._dispatcher.offer(self._lane(work.record), work)

    def _offer(self, work: Work) -> None:
        if work.progress.alive and self._dispatcher.open:
            self._dispatcher.offer(self._lane(work.record), work)
            self._dispatcher.pump()
        else:
            self.over(work)

    async def _ask(self, records: Sequence[Record]) -> set[tuple[int, int]] | None:
        if self._handling.already_done is None:
            return set()
        try:
            async with asyncio.timeout(self._limits.look_up):
                return await self._handling.already_done(records)
        except DependencyUnavailable as error:
            self._hold = self._dispatcher.hold_for(error)
        except TimeoutError:
            self._hold = self._dispatcher.hold_for(DependencyUnavailable("look_up", "timeout"))
        except Exception as error:
            log.error("look-up failed; records go on without it", group=self._group, error=type(error).__name__)
            self._on_error(type(error).__name__, False)
            return set()
        return None

    def _lane(self, record: Record) -> Hashable:
        key = None
        if self._handling.dedup_key is not None:
            try:
                key = self._handling.dedup_key(record)
            except Exception as error:
                log.warning("dedup key failed", group=self._group, error=type(error).__name__)
        return (record.topic, record.partition, record.offset) if key is None else key
