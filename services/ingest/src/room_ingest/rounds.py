"""Produce rounds: all records that arrive while a request is at a broker become the next request to it.

One batch a partition, one answer for all of them. aiokafka's client does connections, TLS and SASL, metadata and
version negotiation; its producer is left out, because its tasks, futures and schema
classes for every record cost several times what the rest of ingest does.

What holds: acks=all; one batch of a partition in flight. A retriable error sends the same bytes again after a look at
the metadata, which an idempotent broker recognises; an error about sequence or producer id rebuilds the records under a
new id, and then, as after any unanswered request without idempotence, a record may be there twice under one ``id``.
Any other error refuses the batch and takes a new id, so that no later batch meets a gap.

A record not acknowledged in time is told so, once. It may still be written: its batch is sent again until all its
records are late, and is dropped then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Final

import structlog
from aiokafka import errors as kafka

from room_common.kafka.failures import failure_kind
from room_common.service.parts import Part
from room_ingest.batches import FLIGHT, NO_IDENTITY, READY, REST, TROUBLE, Batch, Node, Partition, build, older
from room_ingest.cluster import TRANSIENT, Cluster, Link
from room_ingest.lanes import Lane
from room_ingest.metrics import IngestMetrics
from room_ingest.produce import ProduceRequest, Result
from room_ingest.sink import Parcel

MIN_BATCH: Final = 1024
MAX_REQUEST: Final = 8 << 20
TICK_SECONDS: Final = 0.05
RETRY_SECONDS: Final = (0.1, 0.1, 0.2, 0.5, 1.0)
_NEW_CLIENT_AFTER: Final = 5
"""Failed looks at the metadata after which a new client starts from the bootstrap servers: brokers may have moved."""

_DUPLICATE: Final = 46
_TOO_LARGE: Final = frozenset({10, 18})
_FRESH_ID: Final = frozenset({45, 47, 49, 59, 90})
"""Out of order sequence, invalid epoch, invalid id mapping, unknown id, fenced."""

log = structlog.get_logger(__name__)


class Rounds(Part):
    """Keeps one client, one round per broker, and what is needed to go on after any failure.

    Starts without Kafka: until the topics are known every record is refused at once, and ``ready`` says why. Memory is
    bounded by the caller (what waits) plus one batch a partition (what is late but may still be written).
    """

    name = "kafka-rounds"

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        metrics: IngestMetrics,
        *,
        idempotence: bool,
        acknowledge_seconds: float,
        request_seconds: float,
        alone: bool = True,
    ) -> None:
        """``alone``: records have no other place to go. Then each gets its whole time, and without Kafka the service is
        not ready."""
        self._alone = alone
        self.doubtful = False
        """Whether a record may be refused at once (:meth:`Lane.expects_little`)."""
        self._cluster = cluster
        self._idempotent = idempotence
        self._metrics = metrics
        self.limit = acknowledge_seconds
        self._request_seconds = request_seconds
        self.stop_timeout = acknowledge_seconds + 6.0
        self.lanes = {topic: Lane(self, topic) for topic in topics}
        self.outstanding = 0
        self.dead: str | None = None
        self.now = time.monotonic
        self._identity: tuple[int, int] | None = None if idempotence else NO_IDENTITY
        self._nodes: dict[int, Node] = {}
        self.troubled: dict[Partition, None] = {}
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.away: str | None = "no connection to Kafka yet"
        """Why no broker answers, None while one does."""
        self._stopping = False

    # -- lifetime -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._wake.set()
        self._keeper = self._loop.create_task(self._keep(), name="kafka-keeper")
        self._keeper.add_done_callback(self._ended)
        self._tick()

    async def stop(self) -> None:
        """Wait until every record is acknowledged or late, then close."""
        end = self.now() + self.limit + 1.0
        while self.outstanding and self.dead is None and self.now() < end:  # noqa: ASYNC110 - an event costs every record
            await asyncio.sleep(0.01)
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._keeper, *(node.task for node in self._nodes.values())) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2.0)
        self._refuse_all()
        await self._cluster.drop()

    def alive(self) -> str | None:
        return self.dead

    def problem(self) -> str | None:
        """None when Kafka takes records of every topic, else why not."""
        return self.dead or self.away or next((lane.problem for lane in self.lanes.values() if lane.problem), None)

    def ready(self) -> str | None:
        return self.problem() if self._alone else None

    # -- rounds -------------------------------------------------------------------------------------------------------

    def put(self, partition: Partition) -> None:
        """Give a partition with records to its broker's next round, or to recovery where it has no broker."""
        node = partition.node
        if node is None:
            self.trouble(partition)
            return
        partition.place = READY
        node.ready.append(partition)
        if node.task is None:
            node.task = self._loop.create_task(self._drain(node), name=f"kafka-rounds-{node.id}")
            node.task.add_done_callback(self._ended)

    async def _drain(self, node: Node) -> None:
        finished: list[Batch] = []
        while node.ready or finished:
            parcels = self._pack(node)
            sent = await self._send(node, parcels) if parcels else None
            for batch in finished:  # the broker works on the next request while senders get their answers
                self._tell(batch, True)
            finished = await self._collect(node, parcels, *sent) if sent is not None else []
        node.task = None

    def _pack(self, node: Node) -> list[Partition]:
        """The partitions of the next request, each with its batch built."""
        ready, node.ready = node.ready, []
        now_ms = int(time.time() * 1000)
        size = 0
        parcels: list[Partition] = []
        for partition in ready:
            if partition.node is not node:
                self.put(partition)
                continue
            if size > MAX_REQUEST:
                node.ready.append(partition)
                continue
            if partition.batch is None:
                if not partition.pending:
                    partition.place = REST
                    continue
                if self._identity is None:
                    self.trouble(partition)
                    continue
                build(partition, self._identity, now_ms)
            assert partition.batch is not None
            size += len(partition.batch.raw)
            partition.place = FLIGHT
            parcels.append(partition)
        return parcels

    async def _send(self, node: Node, parcels: list[Partition]) -> tuple[Link, Awaitable[list[Result]]] | None:
        """The connection and the answer to come; None when the request could not leave."""
        batches: dict[bytes, list[tuple[int, bytes]]] = {}
        for partition in parcels:
            assert partition.batch is not None
            batches.setdefault(partition.topic, []).append((partition.index, partition.batch.raw))
        try:
            link = await self._cluster.link(node.id)
            return link, link.send(ProduceRequest(batches, int(self.limit * 1000)))
        except TRANSIENT as error:
            self._unanswered(parcels, error)
            return None

    async def _collect(
        self, node: Node, parcels: list[Partition], link: Link, waiting: Awaitable[list[Result]]
    ) -> list[Batch]:
        """Wait for the answer. Returns the batches that are written; the others are sent again, or refused."""
        try:
            results = await waiting
        except TRANSIENT as error:
            if isinstance(error, TimeoutError):
                link.give_up()
            self._unanswered(parcels, error)
            return []
        finished: list[Batch] = []
        open_parcels = {(partition.topic, partition.index): partition for partition in parcels}
        for topic, index, code in results:
            partition = open_parcels.pop((topic, index), None)
            if partition is None or partition.batch is None:
                continue
            if code in (0, _DUPLICATE):
                finished.append(partition.batch)
                partition.batch = None
                if partition.stalled:
                    partition.stalled = False
                    node.trying_until = 0.0
                self._next(partition)
            else:
                self._failed(partition, partition.batch, code)
        for partition in open_parcels.values():
            self.trouble(partition)
        self._metrics.produced["ok" if finished else "failed"] += 1
        return finished

    def _next(self, partition: Partition) -> None:
        if partition.pending or partition.batch is not None:
            self.put(partition)
        else:
            partition.place = REST

    # -- failures -----------------------------------------------------------------------------------------------------

    def _failed(self, partition: Partition, batch: Batch, code: int) -> None:
        """The broker refused a batch with one of Kafka's error codes."""
        error = kafka.for_code(code)
        if code in _FRESH_ID or (code in _TOO_LARGE and len(batch.items) > 1):
            if code in _TOO_LARGE:
                partition.limit = max(MIN_BATCH, len(batch.raw) // 2)
            log.info("records are built again", topic=partition.topic.decode(), error=error.__name__)
            partition.pending = batch.items[batch.told :] + partition.pending
            partition.batch = None
            self._renew()
            self.trouble(partition)
        elif error.retriable or code == kafka.CorruptRecordException.errno:
            self._metrics.produced["retried"] += 1
            self.trouble(partition)
        else:
            log.error("Kafka refused records", topic=partition.topic.decode(), error=error.__name__, code=code)
            partition.batch = None
            self._renew()
            self._tell(batch, False)
            self._next(partition)

    def _unanswered(self, parcels: list[Partition], error: BaseException) -> None:
        self._metrics.produced["retried"] += 1
        log.info("a produce request got no answer", kind=failure_kind(error), error=type(error).__name__)
        for partition in parcels:
            self.trouble(partition)

    def trouble(self, partition: Partition) -> None:
        """Leave a partition with records to recovery."""
        partition.place = TROUBLE
        self.troubled[partition] = None
        self._wake.set()

    def _renew(self) -> None:
        """Sequence numbers have a gap: go on under a new producer id."""
        if self._idempotent:
            self._identity = None
            self._wake.set()

    def _tell(self, batch: Batch, written: bool) -> None:
        items = batch.items[batch.told :] if batch.told else batch.items
        batch.told = len(batch.items)
        self.outstanding -= len(items)
        for item in items:
            try:
                item.done(written)
            except Exception:
                log.exception("an answer could not be given")

    def _refuse_all(self) -> None:
        for lane in self.lanes.values():
            for partition in lane.partitions:
                if partition.batch is not None:
                    self._tell(partition.batch, False)
                self._tell(Batch(b"", partition.pending), False)
                partition.pending, partition.batch = [], None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task of ours ended: a defect if it raised, or if it was the keeper. Nothing is taken any more."""
        error = None if task.cancelled() else task.exception()
        if self._stopping or (error is None and task is not self._keeper):
            return
        self.dead = f"{task.get_name()} ended: {type(error).__name__}"
        log.error("produce rounds ended", exc_info=error)
        self._refuse_all()
        if error is not None:
            self.fail(error)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        if not self.outstanding and not self.troubled:
            return
        late = self.now() - self.limit
        for lane in self.lanes.values():
            for partition in lane.partitions:
                self._expire(partition, late)

    def _expire(self, partition: Partition, late: float) -> None:
        batch = partition.batch
        if batch is not None:
            count = older(batch.items, batch.told, late)
            if count:
                self._stall(partition)
                self._tell_late(batch.items[batch.told : batch.told + count])
                batch.told += count
            if batch.told == len(batch.items) and partition.place == TROUBLE:
                partition.batch = None
                self._renew()
        count = older(partition.pending, 0, late)
        if count:
            self._stall(partition)
            expired, partition.pending = partition.pending[:count], partition.pending[count:]
            self._tell_late(expired)

    def _stall(self, partition: Partition) -> None:
        partition.stalled = True
        self.doubtful = not self._alone

    def _tell_late(self, items: list[Parcel]) -> None:
        self._metrics.expired += len(items)
        self._tell(Batch(b"", items), False)

    # -- recovery -----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Whenever something is wrong: look at the metadata, take a producer id, send the troubled partitions on."""
        failures, drop_at, told = 0, _NEW_CLIENT_AFTER, False
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                async with asyncio.timeout(self._request_seconds + 1.0):
                    await self._repair()
            except (*TRANSIENT, NotImplementedError, AssertionError) as error:
                failures += 2 if isinstance(error, TimeoutError) else 1
                if failures >= 2 and not told:
                    told = True
                    self.doubtful = not self._alone
                    self.away = f"Kafka does not answer ({failure_kind(error)})"
                    log.warning("Kafka does not answer", kind=failure_kind(error), error=type(error).__name__)
                if failures >= drop_at:
                    drop_at = failures + _NEW_CLIENT_AFTER
                    await self._cluster.drop()
                self._wake.set()
            else:
                if told or self.away is not None:
                    log.info("Kafka answers")
                failures, drop_at, told, self.away = 0, _NEW_CLIENT_AFTER, False, None
                self._release()
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    async def _repair(self) -> None:
        await self._cluster.refresh(list(self.lanes))
        for lane in self.lanes.values():
            lane.take_over(self._cluster, self._nodes)
        if self._identity is None:
            identity = await self._cluster.identify()
            for lane in self.lanes.values():
                for partition in lane.partitions:
                    partition.sequence = 0
            self._identity = identity

    def _release(self) -> None:
        """Send the troubled partitions on; those without a leader, and missing topics, are looked at again."""
        troubled, self.troubled = self.troubled, {}
        for partition in troubled:
            self._next(partition)
        if any(lane.problem for lane in self.lanes.values()):
            self._wake.set()
