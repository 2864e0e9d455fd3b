"""Batch subscribers on FastStream: handle a batch, then commit it.

Used in the one mode of FastStream 0.7 that loses nothing: ``batch=True`` with ``AckPolicy.ACK`` and a handler that
never returns before its batch is handled. Its other modes commit early, at a crash or even at a clean stop, and its own
parser loses a record whose header is no UTF-8; ours can't fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from faststream.kafka import KafkaBroker
from faststream.kafka.message import KafkaAckableMessage, KafkaMessage
from prometheus_client import CollectorRegistry

from room_common.advice import explain, told
from room_common.errors import DependencyUnavailable
from room_common.kafka import consumers
from room_common.kafka.failures import failure_kind
from room_common.kafka.observer import GroupObserver
from room_common.kafka.records import Record, from_consumer
from room_common.kafka.security import broker_security
from room_common.kafka.settings import KafkaSettings
from room_common.service.parts import Part

BatchHandler = Callable[[Sequence[Record]], Awaitable[None]]

_START_LIMIT: Final = 60.0
"""Longer than a rebalance: FastStream's start waits until the group has let us in."""

_GRACE: Final = 10.0
_CLOSE_LIMIT: Final = 15.0
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LONGEST_WISH: Final = 60.0
_POLL_MS: Final = 100

log = structlog.get_logger(__name__)


class Batches(Part):
    """Any number of batch subscriptions on one broker object.

    Calls of one handler come one after the other. ``DependencyUnavailable`` and unforeseen errors are retried here with
    back-off until they pass or the service stops: the batch is never skipped, and nothing after it is committed.
    """

    name = "batches"
    stop_timeout = _GRACE + _CLOSE_LIMIT + 5.0

    def __init__(self, settings: KafkaSettings, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._servers = settings.bootstrap_servers
        self._options = consumers.group_options(settings, drain_seconds=0.0, partition_bytes=1024 * 1024)
        self._broker = KafkaBroker(
            settings.bootstrap_servers,
            security=broker_security(settings),
            request_timeout_ms=consumers.request_timeout_ms(settings, 0.0),
            metadata_max_age_ms=60_000,
            client_id="room-batches",
            consumer_only=True,
            allow_auto_create_topics=False,
            graceful_timeout=_GRACE,
            apply_types=False,
            logger=None,
        )
        self._subscriptions: list[_Subscription] = []
        self._observing: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def subscribe(self, topic: str, group: str, handler: BatchHandler, *, max_records: int = 200) -> None:
        """Hand batches of ``topic`` to ``handler``, read as a member of ``group``. Before ``start`` only."""
        subscription = _Subscription(group, handler, GroupObserver(self._registry, group), self._stopping)
        options: dict[str, Any] = dict(self._options)
        options.pop("enable_auto_commit")  # FastStream sets it by the policy
        subscription.subscriber = subscriber = self._broker.subscriber(
            topic,
            group_id=group,
            batch=True,
            max_records=max_records,
            batch_timeout_ms=_POLL_MS,
            ack_policy=AckPolicy.ACK,
            listener=subscription,
            parser=subscription.parse,
            decoder=subscription.decode,
            **options,
        )
        subscriber(subscription.handle)
        self._subscriptions.append(subscription)

    async def start(self) -> None:
        """Join the groups. Raises ``DependencyUnavailable``; may be called again after that."""
        try:
            async with asyncio.timeout(_START_LIMIT):
                await self._broker.start()
        except BaseException as error:
            await self._close(2.0)
            if isinstance(error, KafkaError | OSError | TimeoutError):
                raise DependencyUnavailable("kafka", failure_kind(error), at=self._servers) from error
            raise
        self._observing = asyncio.create_task(self._observe(), name="batches-observe")

    async def stop(self) -> None:
        """Let running handlers end; what they don't finish is not committed and comes again."""
        self._stopping.set()
        if self._observing is not None:
            self._observing.cancel()
        await self._close(_GRACE + _CLOSE_LIMIT)
        for subscription in self._subscriptions:
            subscription.observer.forget()

    def alive(self) -> str | None:
        if self._observing is None or self._stopping.is_set():
            return None
        if self._observing.done():
            return "the observer ended"
        now = time.monotonic()
        return next((f"{sub.group}: {trouble}" for sub in self._subscriptions if (trouble := sub.trouble(now))), None)

    def ready(self) -> str | None:
        if self._observing is None:
            return "no connection to Kafka"
        return next((f"{sub.group}: {reason}" for sub in self._subscriptions if (reason := sub.waits_for())), None)

    @property
    def held(self) -> tuple[str, ...]:
        """What the subscriptions wait for, each reason once."""
        return tuple(dict.fromkeys(sub.reason for sub in self._subscriptions if sub.reason is not None))

    @property
    def lag(self) -> int:
        """Records not yet handled, at the last look."""
        return sum(sub.observer.lag for sub in self._subscriptions)

    async def _close(self, seconds: float) -> None:
        task = asyncio.ensure_future(self._broker.stop())
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            task.cancel()
        task.add_done_callback(_retrieve)

    async def _observe(self) -> None:
        while True:
            for subscription in self._subscriptions:
                await subscription.observe()
            await asyncio.sleep(2.0)


class _Subscription(ConsumerRebalanceListener):  # type: ignore[misc]
    """One handler and what FastStream needs around it."""

    def __init__(self, group: str, handler: BatchHandler, observer: GroupObserver, stopping: asyncio.Event) -> None:
        self.group = group
        self.observer = observer
        self.reason: str | None = None
        self._why: str | None = None
        self.subscriber: Any = None
        self._handler = handler
        self._stopping = stopping
        self._metrics = observer.metrics
        self._watch = consumers.ConsumerWatch()
        self._watched: AIOKafkaConsumer | None = None
        self._assigned = False
        self._first: dict[TopicPartition, int] = {}

    # -- for FastStream

    async def parse(self, messages: tuple[ConsumerRecord, ...]) -> KafkaMessage:
        """Wrap a batch without looking into it. FastStream's own parser decodes headers, fails, and loses the batch."""
        return KafkaAckableMessage(
            body=b"",
            headers={},
            batch_headers=[],
            message_id=f"{messages[0].offset}-{messages[-1].offset}",
            raw_message=messages,
            consumer=self.subscriber.consumer,
        )

    async def decode(self, message: KafkaMessage) -> tuple[Record, ...]:
        """Async, since FastStream runs other decoders in a thread."""
        return tuple(from_consumer(record) for record in message.raw_message)

    async def handle(self, records: tuple[Record, ...]) -> None:
        """Return when the batch is handled: FastStream commits then. At the end of the service leave it uncommitted."""
        for record in records:
            self._first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        self._metrics.received.labels(records[0].topic, self.group).inc(len(records))
        failures = 0
        try:
            if not self.observer.settled:  # the first commit hides which offsets were lost
                await self.observe()
            while not self._stopping.is_set():
                pause = await self._attempt(records, failures)
                if pause is None:
                    self._metrics.completed.labels(records[0].topic, self.group).inc(len(records))
                    return
                failures += 1
                await self._sleep(pause)
        finally:
            self._first.clear()
            self._wait_for(None)
        raise NackMessage

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.observer.forget()
        self._assigned = False

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._metrics.rebalances.labels(self.group).inc()
        self.observer.begin(assigned)
        self._assigned = True

    # -- handling

    async def _attempt(self, records: tuple[Record, ...], failures: int) -> float | None:
        """None when the batch is handled, else the seconds to wait before the next attempt."""
        pause = min(_PAUSE * float(2 ** min(failures, 10)), _LONGEST_PAUSE)
        try:
            await self._handler(records)
        except DependencyUnavailable as error:
            self._wait_for(f"{error.dependency}_{error.kind}", explain(error))
            return max(pause, min(error.retry_after or 0.0, _LONGEST_WISH))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed(records, RuntimeError("cancelled from inside"))
        except Exception as error:
            self._failed(records, error)
        else:
            return None
        return pause

    def _failed(self, records: tuple[Record, ...], error: Exception) -> None:
        name = type(error).__name__
        self._metrics.handler_errors.labels(self.group, name).inc()
        first = records[0]
        log.error("batch failed", group=self.group, topic=first.topic, records=len(records), error=name)
        self._wait_for("handler_error")

    def _wait_for(self, reason: str | None, why: str | None = None) -> None:
        self._why = why
        if reason == self.reason:
            return
        if self.reason is not None:
            self._metrics.held.labels(self.group, self.reason).set(0)
        if reason is not None:
            log.warning("consumption is held", group=self.group, reason=reason, why=why)
            self._metrics.held.labels(self.group, reason).set(1)
        self.reason = reason

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # -- for the frame

    def waits_for(self) -> str | None:
        return told(self.reason, self._why) if self.reason else (None if self._assigned else "waiting for partitions")

    def trouble(self, now: float) -> str | None:
        """Why this subscription does not progress, although its dependencies may be there."""
        consumer = self.subscriber.consumer
        if consumer is None:
            return "no consumer"
        if consumer is not self._watched:
            self._watched, self._watch = consumer, consumers.ConsumerWatch()
        reason = self._watch.trouble(consumer, now)
        if reason is not None:
            return reason
        idle = consumer._subscription.fetcher_idle_time
        if not self._first and idle > consumers.POLL_LIMIT_SECONDS and not consumers.is_reassigning(consumer):
            return f"no poll for {idle:.0f} s"
        return None

    async def observe(self) -> None:
        consumer = self.subscriber.consumer
        if consumer is not None and self._assigned:
            await self.observer.look(consumer, lambda tp: self._position(consumer, tp))

    def _position(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> int | None:
        if tp in self._first:
            return self._first[tp]
        assignment = consumer._subscription.subscription.assignment
        state = None if assignment is None else assignment.state_value(tp)
        return state.position if state is not None and state.has_valid_position else None


def _retrieve(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()
