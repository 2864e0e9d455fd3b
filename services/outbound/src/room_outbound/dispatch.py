"""Who is delivered next: woken by records, and by a look at the rows that are due.

Records only wake. Their offsets complete as soon as the ids are queued here: what a crash forgets is found again by the
look at the rows, because ``published`` rows are due until they are settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from prometheus_client import CollectorRegistry

from room_common.contracts.messages import OutboundMessage, read
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.records import Record
from room_common.kafka.spans import process_span
from room_common.postgres import sending
from room_common.postgres.database import Database
from room_common.service.parts import Loop
from room_common.telemetry.metrics import gauge
from room_common.telemetry.tracing import traceparent_now
from room_outbound.dead_letters import DeadLetters
from room_outbound.delivery import Delivery
from room_outbound.metrics import IN_FLIGHT

GROUP: Final = "outbound"
"""The consumer group of wake-ups."""

_log = logging.getLogger(__name__)


class Dispatcher(Loop):
    """Runs up to ``concurrency`` deliveries, each id at most once at a time, the rest waiting in a bounded queue."""

    name = "dispatcher"
    grace = 35.0
    stop_timeout = 40.0

    def __init__(
        self,
        database: Database,
        delivery: Delivery,
        dead_letters: DeadLetters,
        *,
        concurrency: int,
        poll_seconds: float,
        registry: CollectorRegistry,
    ) -> None:
        super().__init__()
        self._database = database
        self._delivery = delivery
        self._dead_letters = dead_letters
        self._poll = poll_seconds
        self._concurrency = concurrency
        self._queue: asyncio.Queue[tuple[UUID, str | None]] = asyncio.Queue(maxsize=4 * concurrency)
        self._known: set[UUID] = set()
        self._in_flight = gauge(registry, IN_FLIGHT)

    async def handle(self, records: Sequence[Record]) -> None:
        """Queue the messages that these records name. Waits while the queue is full."""
        for record in records:
            with process_span(record, GROUP):
                try:
                    message = read(OutboundMessage, record.value)
                except DeadLetter:
                    # Nothing is lost: the row itself is due until it is settled.
                    _log.warning(
                        "unreadable outbound record", extra={"partition": record.partition, "offset": record.offset}
                    )
                    continue
                await self._offer(message.id, traceparent_now())

    async def run(self) -> None:
        """Work until stopped; deliveries under way are finished, queued ones are left to the next process."""
        workers = [asyncio.create_task(self._work(), name=f"delivery-{n}") for n in range(self._concurrency)]
        try:
            while await self.pause(self._poll):
                await self._look()
        finally:
            await asyncio.wait(workers, timeout=self.grace - 5)
            for worker in workers:
                worker.cancel()

    async def _look(self) -> None:
        try:
            async with self._database.transaction() as conn:
                await sending.expire_once_only(conn)
                ids = await sending.due(conn, self._queue.maxsize)
            await self._dead_letters.write()
        except DependencyUnavailable:
            return
        for message_id in ids:
            if self._queue.full():
                return
            await self._offer(message_id)

    async def _offer(self, message_id: UUID, came_by: str | None = None) -> None:
        if message_id not in self._known:
            self._known.add(message_id)
            await self._queue.put((message_id, came_by))

    async def _work(self) -> None:
        while not self.stopping.is_set():
            try:
                async with asyncio.timeout(0.5):
                    queued, came_by = await self._queue.get()
            except TimeoutError:
                continue
            message_id: UUID | None = queued
            while message_id is not None and not self.stopping.is_set():
                message_id, came_by = await self._one(message_id, came_by), None

    async def _one(self, message_id: UUID, came_by: str | None) -> UUID | None:
        self._in_flight.inc()
        try:
            return await self._delivery.deliver(message_id, came_by)
        except DependencyUnavailable as error:
            _log.warning("delivery postponed", extra={"message_id": str(message_id), "reason": str(error)})
            return None
        except Exception as error:
            # The row stays as it is, and is taken up again after its lease; this worker has others to deliver.
            _log.error(
                "delivery failed unforeseen", extra={"message_id": str(message_id), "kind": type(error).__name__}
            )
            return None
        finally:
            self._in_flight.dec()
            self._known.discard(message_id)
