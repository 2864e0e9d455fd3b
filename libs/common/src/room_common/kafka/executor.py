"""The executor: records of a partition run side by side and finish in any order, yet no offset is committed too early.

What it guarantees:

* A committed offset never passes a record that is not finished, so a crash repeats work and loses none.
* Records with an equal dedup key run one at a time in this process, also across a rebalance.
* What is buffered, and the span of each partition between its first unfinished and its newest record, are bounded.
  When full it polls on without taking records in, so that the group and the liveness check see it live.
* One key may fill only its share of the buffer. What comes beyond is handed to ``Handling.divert``, so that a flood
  does not stand in front of the others in its partition.
* A revoked partition's queue is dropped, its running handlers get a few seconds, then what is finished is committed.
  A handler that still runs after that completes nothing; its effects need an idempotency key of their own.
* A dependency that is away holds consumption: assigned partitions are paused, also those that come later, and polling
  goes on. From time to time one record is let through; its success ends the hold. No attempt is spent, nothing skipped.
  What failed goes behind all others, and one more record is fetched, so that one that always fails is not all there is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from room_common.advice import told
from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.kafka import consumers
from room_common.kafka.attempts import Attempts, Work
from room_common.kafka.dispatch import Dispatcher
from room_common.kafka.execution import Counts, Handling, Limits
from room_common.kafka.failures import failure_kind
from room_common.kafka.intake import Intake
from room_common.kafka.observer import GroupObserver
from room_common.kafka.offsets import Assignment
from room_common.kafka.settings import KafkaSettings
from room_common.service.parts import Part

_POLL_MS: Final = 200
_POLL_RECORDS: Final = 500
_IDLE_POLL: Final = 0.5
"""While no more is taken in, a poll every so many seconds shows the group that this member lives."""
_ROOM_PARTS: Final = 16
"""A full buffer takes in more once one of so many parts of it is free: each fetch costs a look-up."""
_REVOKE_DIVERT: Final = 2.0
_COMMIT_LIMIT: Final = 10.0
_LAST_COMMIT_LIMIT: Final = 5.0
_CLOSE_LIMIT: Final = 15.0
_OPEN_LIMIT: Final = 30.0

Batches = dict[TopicPartition, list[ConsumerRecord]]

log = structlog.get_logger(__name__)


class Executor(Part):
    """Consumes ``topics`` as a member of ``group``."""

    def __init__(
        self,
        settings: KafkaSettings,
        registry: CollectorRegistry,
        *,
        group: str,
        topics: Sequence[str],
        handling: Handling,
        limits: Limits | None = None,
    ) -> None:
        self.name = f"executor-{group}"
        self.group = group
        self.limits = limits or Limits()
        self.stop_timeout = self.limits.stop_drain + _LAST_COMMIT_LIMIT + _CLOSE_LIMIT + 10.0
        self.counts = Counts()
        self._settings = settings
        self._topics = tuple(topics)
        self._nowhere = TopicPartition(self._topics[0], -1)
        self._assignment: Assignment[TopicPartition] = Assignment()
        self._observer = GroupObserver(registry, group)
        self._metrics = self._observer.metrics
        self._dispatcher = Dispatcher(
            Attempts(
                handling.handle,
                handling.on_poison,
                attempts=self.limits.attempts,
                pause_seconds=self.limits.retry_pause,
                on_error=self._on_error,
                group=group,
            ),
            concurrency=self.limits.concurrency,
            probe_seconds=self.limits.probe,
            on_over=self._over,
            on_change=self._hold_changed,
            on_crash=self.fail,
        )
        self._intake = Intake(
            group,
            handling,
            self.limits,
            assignment=self._assignment,
            observer=self._observer,
            dispatcher=self._dispatcher,
            on_over=self._over,
            on_error=self._on_error,
        )
        self._watch = consumers.ConsumerWatch()
        self._consumer: AIOKafkaConsumer | None = None
        self._polling: asyncio.Task[tuple[int, Batches]] | None = None
        self._last_poll = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._commit_lock = asyncio.Lock()
        self._completed: Counter[tuple[str, int]] = Counter()
        self._assigned = self._full = False
        self._stopping = False
        self._postponed: set[str] = set()

    # -- lifetime

    async def start(self) -> None:
        """Join the group. Raises ``DependencyUnavailable``; may be called again after that."""
        await self._open()
        for run in (self._poll_loop, self._commit_loop, self._observe_loop):
            task = asyncio.create_task(run(), name=f"{self.name}{run.__name__.replace('_', '-')}")
            task.add_done_callback(self._loop_ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Take nothing more in, let running handlers finish, commit, leave the group. Each step is bounded."""
        self._stopping = True
        self._drop_waiting()
        await self._dispatcher.drain(self.limits.stop_drain)
        await self._intake.drain(_REVOKE_DIVERT)
        await self._commit_last()
        self._export_completed()
        self._assignment.end()
        await self._dispatcher.cancel(2.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumers.stop_consumer(consumer, _CLOSE_LIMIT)
        self._observer.forget()

    def alive(self) -> str | None:
        consumer = self._consumer
        if self._stopping or consumer is None:
            return None
        for task in self._tasks:
            if task.done():
                return f"{task.get_name()} ended"
        trouble = self._watch.trouble(consumer, time.monotonic())
        if trouble is None and self.last_poll_age > consumers.POLL_LIMIT_SECONDS:
            trouble = None if consumers.is_reassigning(consumer) else f"no poll for {self.last_poll_age:.0f} s"
        return trouble

    def ready(self) -> str | None:
        if self.held:
            return "held: " + ", ".join(told(reason, self._dispatcher.why(reason)) for reason in self.held)
        return None if self._assigned else "waiting for partitions"

    # -- hold

    @property
    def held(self) -> tuple[str, ...]:
        """The reasons why nothing is started at the moment."""
        return self._dispatcher.reasons

    def hold(self, reason: str, *, probe: bool = True, wish: float | None = None) -> None:
        """Start nothing more until ``release``, or until a probe succeeds where every hold allows probes.

        Running handlers go on. ``wish`` is the dependency's own wish, in seconds, for the next probe.
        """
        self._dispatcher.hold(reason, probe=probe, wish=wish)

    def release(self, reason: str | None = None) -> None:
        """End the hold of that reason, or all of them."""
        self._dispatcher.release(reason)

    def _hold_changed(self, reason: str, began: bool) -> None:
        self._metrics.held.labels(self.group, reason).set(int(began))
        if began:
            log.warning("consumption is held", group=self.group, reason=reason, why=self._dispatcher.why(reason))
            self._pause()
        else:
            log.info("hold ended", group=self.group, reason=reason)
            if not self.held:
                self._resume()

    def _pause(self) -> None:
        if self._consumer is not None:
            self._consumer.pause(*(self._consumer.assignment() - self._consumer.paused()))

    def _resume(self) -> None:
        if self._consumer is not None:
            self._consumer.resume(*self._consumer.paused())

    # -- figures

    @property
    def lag(self) -> int:
        """Records after the committed offsets, at the last look."""
        return self._observer.lag

    @property
    def offsets_lost(self) -> int:
        """Records that the broker deleted before they were finished, since the start."""
        return self._observer.lost

    @property
    def buffered(self) -> int:
        """Records received and not finished."""
        return self._assignment.unfinished

    @property
    def in_flight(self) -> int:
        """Records whose handler runs."""
        return self._dispatcher.running

    @property
    def span(self) -> int:
        """The largest distance from a partition's first unfinished record to its newest."""
        return self._assignment.span

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest unfinished record has been in this process."""
        oldest = self._intake.oldest
        return 0.0 if oldest is None else time.monotonic() - oldest.received

    @property
    def last_poll_age(self) -> float:
        """Seconds since a poll returned."""
        return time.monotonic() - self._last_poll

    # -- the client and its assignments

    async def _open(self) -> None:
        consumer = consumers.make_consumer(self._settings, self.group, drain_seconds=self.limits.revoke_drain)
        try:
            async with asyncio.timeout(_OPEN_LIMIT):
                await consumer.start()
                if not set(self._topics) <= await consumer.topics():
                    raise DependencyUnavailable("kafka", "unknown_topic")
        except BaseException as error:
            await consumers.stop_consumer(consumer, 2.0)
            if isinstance(error, KafkaError | OSError | TimeoutError):
                raise DependencyUnavailable(
                    "kafka", failure_kind(error), at=self._settings.bootstrap_servers
                ) from error
            raise
        self._watch = consumers.ConsumerWatch()
        self._last_poll = time.monotonic()
        self._consumer = consumer
        # Only now: with a subscription, start would wait for the group to let us in, as long as a rebalance takes.
        consumer.subscribe(self._topics, listener=_Listener(self._revoked, self._given))

    async def _reopen(self, consumer: AIOKafkaConsumer, reason: str) -> None:
        """Replace a client whose background tasks died; there is no other way to make it work again."""
        log.error("kafka consumer is replaced", group=self.group, reason=reason)
        self.counts.recreations += 1
        self._metrics.client_recreations.labels(self.group).inc()
        await self._revoked(set())
        self._consumer = self._polling = None
        await consumers.stop_consumer(consumer, 5.0)
        while not self._stopping:
            try:
                await self._open()
            except DependencyUnavailable as error:
                log.warning("kafka consumer can't connect", group=self.group, kind=error.kind)
                await asyncio.sleep(2.0)
            else:
                return

    async def _revoked(self, _: set[TopicPartition]) -> None:
        self._drop_waiting()
        await self._dispatcher.drain(self.limits.revoke_drain)
        await self._intake.drain(_REVOKE_DIVERT)
        await self._commit_last()
        self._export_completed()
        self._assignment.end()
        self._intake.keep_only(self._dispatcher.in_flight())
        self._observer.forget()
        self._assigned = False

    async def _given(self, partitions: set[TopicPartition]) -> None:
        self._assignment.begin(partitions)
        self._observer.begin(partitions)
        self._assigned = True
        self._dispatcher.open = not self._stopping
        self.counts.rebalances += 1
        self._metrics.rebalances.labels(self.group).inc()
        if self.held:
            self._pause()
        log.info("partitions assigned", group=self.group, partitions=len(partitions), epoch=self._assignment.epoch)

    def _drop_waiting(self) -> None:
        self._dispatcher.close()
        self._intake.drop_waiting()

    # -- polling

    async def _poll_loop(self) -> None:
        while not self._stopping:
            consumer = self._consumer
            assert consumer is not None
            reason = self._watch.dead(consumer)
            if reason is not None:
                await self._reopen(consumer, reason)
                continue
            try:
                await self._turn(consumer)
            except KafkaError as error:
                log.warning("poll failed", group=self.group, kind=failure_kind(error), error=type(error).__name__)
                await asyncio.sleep(1.0)

    async def _turn(self, consumer: AIOKafkaConsumer) -> None:
        """Poll once, in the way that the present state asks for."""
        await self._intake.look_up()
        self._dispatcher.pump()
        room = self.limits.buffered - self.buffered
        self._full = room <= 0 or (self._full and room < self.limits.buffered // _ROOM_PARTS)
        below = self._open_partitions()
        if self.held:
            await self._turn_held(consumer)
        elif self._intake.waits or self._full or (self._assigned and not below):
            if room <= 0:
                self._intake.press()
            await self._dispatcher.wait(_IDLE_POLL)
            if self._polling is not None or self.last_poll_age >= _IDLE_POLL:
                await self._poll(consumer, [self._nowhere], 1, wait_ms=0)
        else:
            everything = len(below) == len(self._assignment.partitions)
            await self._poll(consumer, [] if everything else below, min(_POLL_RECORDS, room))

    def _open_partitions(self) -> list[TopicPartition]:
        """Those that may bring more: not too far ahead, and nothing of theirs waits for its share."""
        below, congested = self._assignment.below(self.limits.span), self._intake.congested
        return [tp for tp in below if tp not in congested] if congested else below

    async def _turn_held(self, consumer: AIOKafkaConsumer) -> None:
        full = self.buffered >= self.limits.buffered
        if self._dispatcher.lacks_probe and not self._intake.waits and not full:
            self._resume()  # until one record came to probe with
        else:
            self._pause()
        if await self._poll(consumer, [], 1) and self.held:
            self._pause()

    async def _poll(
        self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition], records: int, wait_ms: int = _POLL_MS
    ) -> bool:
        """Take in what is there; False when nothing came. ``partitions`` empty means all.

        A poll is never cancelled: one that does not end now is looked at again in the next turn. (A cancelled
        ``getmany`` corrupts aiokafka's count of polls for ever, and during a rebalance it waits for its end.)
        """
        if self._polling is None:
            self._polling = asyncio.create_task(self._fetch(consumer, partitions, records, wait_ms))
            self._polling.add_done_callback(_retrieve)
        await asyncio.wait({self._polling}, timeout=1.0)
        if not self._polling.done():
            return False
        task, self._polling = self._polling, None
        self._last_poll = time.monotonic()
        self._metrics.last_poll.labels(self.group).set_to_current_time()
        epoch, batches = task.result()
        if not batches or epoch != self._assignment.epoch or not self._dispatcher.open:
            return False
        for tp, batch in batches.items():
            self.counts.received += len(batch)
            self._metrics.received.labels(tp.topic, self.group).inc(len(batch))
        await self._intake.take(batches)
        self._dispatcher.pump()
        return True

    async def _fetch(
        self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition], records: int, wait_ms: int
    ) -> tuple[int, Batches]:
        batches = await consumer.getmany(*partitions, timeout_ms=wait_ms, max_records=records)
        return self._assignment.epoch, batches  # read in the same step, so that no rebalance comes between

    # -- finishing

    def _over(self, work: Work, complete: bool) -> None:
        self._intake.over(work)
        if not complete or not work.progress.alive:
            return
        record = work.record
        work.progress.finish(record.offset)
        self.counts.completed += 1
        self._completed[record.topic, record.partition] += 1

    def _on_error(self, name: str, last: bool) -> None:
        self.counts.handler_errors += 1
        self._metrics.handler_errors.labels(self.group, name).inc()
        if last:
            self.counts.poisoned += 1
            self._metrics.poisoned.labels(self.group).inc()

    def _export_completed(self) -> None:
        """Counted by the record and exported by the second: labels cost more than the rest of finishing one."""
        for (topic, partition), records in self._completed.items():
            self._metrics.completed.labels(topic, self.group).inc(records)
            self._observer.progressed(TopicPartition(topic, partition))
        self._completed.clear()

    async def _commit_loop(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self.limits.commit_interval)
            self._export_completed()
            if self._dispatcher.open and self._observer.settled:
                await self._commit(_COMMIT_LIMIT)

    async def _commit_last(self) -> None:
        """Before partitions are given away. Without membership nothing fences a commit, so none is made then."""
        if self._consumer is not None and consumers.is_member(self._consumer):
            await self._commit(_LAST_COMMIT_LIMIT)

    async def _commit(self, seconds: float) -> None:
        """Commit the watermarks that moved. Errors are counted: the next commit says the same and more."""
        async with self._commit_lock:
            consumer, epoch = self._consumer, self._assignment.epoch
            offsets = self._assignment.to_commit()
            if consumer is None or not offsets:
                return
            crash_point("executor.before_offsets_commit")
            try:
                async with asyncio.timeout(seconds):
                    await consumer.commit(offsets)
                crash_point("executor.after_offsets_commit")
            except (KafkaError, OSError, TimeoutError) as error:
                self.counts.commit_errors += 1
                self._metrics.commit_errors.labels(self.group).inc()
                log.warning("commit failed", group=self.group, kind=failure_kind(error), error=type(error).__name__)
            else:
                self.counts.commits += 1
                self._metrics.commits.labels(self.group).inc()
                self._assignment.committed(epoch, offsets)

    async def _observe_loop(self) -> None:
        while not self._stopping:
            await self._observer.wait()
            self._metrics.buffered.labels(self.group).set(self.buffered)
            self._metrics.in_flight.labels(self.group).set(self.in_flight)
            self._export_postponed()
            self._metrics.span.labels(self.group).set(self.span)
            self._metrics.oldest.labels(self.group).set(self.oldest_seconds)
            if self._consumer is not None and self._dispatcher.open:
                await self._observer.look(self._consumer, self._assignment.watermark)

    def _export_postponed(self) -> None:
        waiting = self._dispatcher.postponed
        for reason in self._postponed | waiting.keys():
            self._metrics.postponed.labels(self.group, reason).set(waiting[reason])
        self._postponed |= waiting.keys()

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)


def _retrieve(task: asyncio.Task[tuple[int, Batches]]) -> None:
    if not task.cancelled():
        task.exception()


Changed = Callable[[set[TopicPartition]], Awaitable[None]]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka awaits these inside its coordination task, while heartbeats go on."""

    def __init__(self, revoked: Changed, given: Changed) -> None:
        self._revoked = revoked
        self._given = given

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._given(assigned)
