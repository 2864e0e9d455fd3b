"""The one producer: acknowledged by all replicas, bounded in time, replaced when it dies.

aiokafka's idempotent producer never gives up on a batch, so neither a send nor a stop ends while the broker is away;
after a batch that failed for good it refuses every later one of the partition. Both are handled here, once.
A send that timed out may still be written: consumers recognise records by their ids.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.failures import failure_kind, send_failure
from room_common.kafka.metrics import kafka_metrics
from room_common.kafka.records import Headers
from room_common.kafka.security import client_options
from room_common.kafka.settings import KafkaSettings
from room_common.kafka.spans import send_span
from room_common.service.parts import Part
from room_common.telemetry.tracing import failed

MAX_BATCH_BYTES: Final = 256 * 1024
"""aiokafka's 16 KiB collapses under concurrency, as all waiters of a full batch wake at once (1.3k for 16k sends/s)."""

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""At most ``max.message.bytes`` of our topics, so that a record is refused here and leaves no gap at the broker."""

_STOP_SECONDS: Final = 8.0
_RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where an acknowledged record is. ``timestamp_ms`` is the one that the topic keeps."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to send. ``partition`` None leaves the choice to the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class Producer(Part):
    """Sends records and waits for their acknowledgement."""

    name = "kafka-producer"
    stop_timeout = 2 * _STOP_SECONDS

    def __init__(self, settings: KafkaSettings, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._metrics = kafka_metrics(registry)
        self._client: AIOKafkaProducer | None = None
        self._rebuild: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[object]] = set()
        self._started = False
        self._stopped = False

    async def start(self) -> None:
        """Connect. Raises ``DependencyUnavailable``; may be called again after that."""
        self._client = await self._connect()
        self._started = True

    async def stop(self) -> None:
        """Wait a little for what is in flight, then close. Bounded also when no broker answers."""
        self._stopped = True
        if self._rebuild is not None:
            self._rebuild.cancel()
            await asyncio.wait({self._rebuild})
        client, self._client = self._client, None
        if client is not None:
            await _close(client, _STOP_SECONDS)
        if self._background:
            await asyncio.wait(set(self._background), timeout=1.0)

    def alive(self) -> str | None:
        if self._started and not self._stopped and self._dead() and self._rebuild is None:
            return "the sender task ended and nothing replaces it"
        return None

    def ready(self) -> str | None:
        return "no connection to Kafka" if self._dead() else None

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement, ``timeout`` seconds at most (else the setting's).

        Raises ``DependencyUnavailable("kafka", ...)``, and ``DeadLetter("too_large")`` for a record that never fits.
        """
        (result,) = await self.send_many([Outgoing(topic, key, value, tuple(headers), partition)], timeout=timeout)
        if isinstance(result, RecordMetadata):
            return result
        raise result

    async def send_many(
        self, records: Sequence[Outgoing], *, timeout: float | None = None
    ) -> list[RecordMetadata | DependencyUnavailable | DeadLetter]:
        """Send all and wait for all: one result for each record, in order; an error stands where its record failed.

        Raises only ``CancelledError``; records handed over by then may still be written.
        """
        started = time.monotonic()
        seconds = self._settings.send_timeout_seconds if timeout is None else timeout
        sending = [_Sending(record) for record in records]
        try:
            async with asyncio.timeout(seconds):
                client = await self._usable()
                for one in sending:
                    await one.hand_over(client)
                waiting = [one.future for one in sending if one.future is not None]
                if waiting:
                    await asyncio.wait(waiting)
        except TimeoutError as error:
            late: BaseException = error
        except DependencyUnavailable as error:
            late = error
        else:
            late = TimeoutError()
        results = [one.result(late) for one in sending]
        self._account(sending, results, time.monotonic() - started)
        return results

    def _account(
        self,
        sending: Sequence[_Sending],
        results: Sequence[RecordMetadata | DependencyUnavailable | DeadLetter],
        seconds: float,
    ) -> None:
        topics = set()
        for one, result in zip(sending, results, strict=True):
            if isinstance(result, RecordMetadata):
                outcome = "ok"
                topics.add(result.topic)
            else:
                outcome = result.kind
            self._metrics.sent.labels(one.record.topic, outcome).inc()
        if topics or any(isinstance(result, DependencyUnavailable) for result in results):
            self._metrics.up.set(1 if topics else 0)
        for topic in topics:
            self._metrics.send_seconds.labels(topic).observe(seconds)
        for one in sending:
            if one.client is self._client and one.breaks_client(self._settings.idempotence):
                self._replace(one.client, failure_kind(one.error or RuntimeError()))
                break

    def _dead(self) -> bool:
        client = self._client
        return client is None or client._sender.sender_task is None or client._sender.sender_task.done()

    async def _usable(self) -> AIOKafkaProducer:
        if self._stopped or not self._started:
            raise DependencyUnavailable("kafka", "not_started")
        while self._dead():
            if self._rebuild is None:
                self._replace(self._client, "sender_ended")
            elif self._rebuild.done():  # pragma: no cover - its callback runs in the same turn of the loop
                await asyncio.sleep(0)
            else:
                await asyncio.wait({self._rebuild})
            if self._stopped:
                raise DependencyUnavailable("kafka", "not_started")
        assert self._client is not None
        return self._client

    async def _connect(self) -> AIOKafkaProducer:
        client = AIOKafkaProducer(
            client_id="room-producer",
            acks="all",
            enable_idempotence=self._settings.idempotence,
            linger_ms=0,
            max_batch_size=MAX_BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
            **client_options(self._settings),
        )
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000 + 5):
                await client.start()
        except (KafkaError, OSError, TimeoutError) as error:
            self._later(_close(client, _STOP_SECONDS))
            raise DependencyUnavailable("kafka", failure_kind(error), at=self._settings.bootstrap_servers) from error
        except BaseException:
            self._later(_close(client, _STOP_SECONDS))
            raise
        self._metrics.up.set(1)
        task = client._sender.sender_task
        task.add_done_callback(lambda _: self._sender_ended(client))
        return client

    def _sender_ended(self, client: AIOKafkaProducer) -> None:
        if client is self._client and not self._stopped:
            self._replace(client, "sender_ended")

    def _replace(self, client: AIOKafkaProducer | None, reason: str) -> None:
        """Give up ``client`` and build another one in the background; senders wait for it within their own time."""
        if self._stopped or self._rebuild is not None or client is not self._client:
            return
        log.warning("kafka producer is replaced", reason=reason)
        self._metrics.producer_recreations.labels(reason).inc()
        self._client = None
        if client is not None:
            self._later(_close(client, _STOP_SECONDS))
        self._rebuild = asyncio.create_task(self._reconnect(), name="kafka-producer-rebuild")
        self._rebuild.add_done_callback(self._rebuilt)

    async def _reconnect(self) -> None:
        attempt = 0
        while not self._stopped:
            try:
                self._client = await self._connect()
            except DependencyUnavailable as error:
                log.warning("kafka producer can't connect", kind=error.kind)
                await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
                attempt += 1
            else:
                return

    def _rebuilt(self, task: asyncio.Task[None]) -> None:
        self._rebuild = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _later(self, coroutine: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(coroutine)  # type: ignore[call-overload]
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _Sending:
    """One record on its way: the future of its acknowledgement, or the error that came first."""

    __slots__ = ("client", "error", "future", "headers", "record", "span")

    def __init__(self, record: Outgoing) -> None:
        self.record = record
        self.client: AIOKafkaProducer | None = None
        self.future: asyncio.Future[object] | None = None
        self.error: BaseException | None = None
        traced = send_span(record.topic, record.headers)
        self.span = None if traced is None else traced[0]
        self.headers = record.headers if traced is None else traced[1]

    async def hand_over(self, client: AIOKafkaProducer) -> None:
        record = self.record
        self.client = client
        try:
            self.future = await client.send(
                record.topic, record.value, key=record.key, partition=record.partition, headers=list(self.headers)
            )
        except (KafkaError, OSError) as error:
            self.error = error
        else:
            self.future.add_done_callback(_retrieve)

    def result(self, late: BaseException) -> RecordMetadata | DependencyUnavailable | DeadLetter:
        """``late`` is why waiting ended, for records without an answer. Ends the record's span."""
        result = self._result(late)
        if self.span is not None:
            if not isinstance(result, RecordMetadata):
                failed(self.span, result.kind)
            else:
                self.span.set_attribute("messaging.destination.partition.id", str(result.partition))
                self.span.set_attribute("messaging.kafka.offset", result.offset)
            self.span.end()
        return result

    def _result(self, late: BaseException) -> RecordMetadata | DependencyUnavailable | DeadLetter:
        if self.future is not None and self.future.done() and not self.future.cancelled():
            self.error = self.future.exception()
            if self.error is None:
                answer = self.future.result()
                return RecordMetadata(answer.topic, answer.partition, answer.offset, answer.timestamp)  # type: ignore[attr-defined]
        return send_failure(self.error or late)

    def breaks_client(self, idempotent: bool) -> bool:
        """Whether the client can't go on after this.

        With idempotence any batch that failed for good leaves a gap in the partition's sequence, after which the broker
        refuses all later ones. A record refused before it was handed over leaves none.
        """
        if self.error is None:
            return False
        return failure_kind(self.error) == "producer_lost" or (idempotent and self.future is not None)


def _retrieve(future: asyncio.Future[object]) -> None:
    if not future.cancelled():
        future.exception()


async def _close(client: AIOKafkaProducer, seconds: float) -> None:
    """Flush and close for at most ``seconds``, then cut the connections."""
    task = asyncio.ensure_future(client.stop())
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        _retrieve(task)
        return
    task.cancel()
    task.add_done_callback(_retrieve)
    sender = client._sender.sender_task
    if sender is not None:
        sender.cancel()
    cut = asyncio.ensure_future(client.client.close())
    cut.add_done_callback(_retrieve)
    await asyncio.wait({cut}, timeout=1.0)
