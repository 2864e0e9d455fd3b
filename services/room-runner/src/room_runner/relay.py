"""Publishes the outbox: what has committed becomes a record in ``room.outbound``, at least once.

A worker publishes what its own cycles wrote at once, and what others left behind after a moment. A record only wakes
the consumer, so one too many is harmless, and one that was lost is made up for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry

from room_common.contracts import topics
from room_common.contracts.messages import OutboundMessage
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.faults import crash_point
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.postgres import outbox
from room_common.postgres.database import Database
from room_common.postgres.outbox import OutboxRow
from room_common.service.parts import Loop
from room_common.telemetry.metrics import counter
from room_common.telemetry.tracing import trace_headers
from room_runner.metrics import PUBLISHED
from room_runner.settings import CycleSettings

_PAGE: Final = 100
_SEND_SECONDS: Final = 10.0
_log = structlog.get_logger(__name__)


class Relay(Loop):
    """The outbox relay of one worker."""

    name = "relay"

    def __init__(
        self, database: Database, producer: Producer, registry: CollectorRegistry, settings: CycleSettings
    ) -> None:
        super().__init__()
        self._database = database
        self._producer = producer
        self._settings = settings
        self._own: set[UUID] = set()
        self._nudged = asyncio.Event()
        self._published = counter(registry, PUBLISHED)

    def nudge(self, cycle_id: UUID) -> None:
        """This cycle has committed a message."""
        self._own.add(cycle_id)
        self._nudged.set()

    async def run(self) -> None:
        """Publish until stopped, and what there is once more at the end."""
        while True:
            last = self.stopping.is_set()
            try:
                more = await self.publish()
            except DependencyUnavailable as error:
                _log.warning("outbox not published", reason=str(error))
                more = False
                if not last:
                    await self.pause(self._settings.relay_seconds)
            if last:
                return
            if not more:
                await self._wait()

    async def stop(self) -> None:
        self.stopping.set()
        self._nudged.set()
        await super().stop()

    async def publish(self) -> bool:
        """Publish one page; whether there may be more. Raises ``DependencyUnavailable``."""
        own = frozenset(self._own)
        async with self._database.transaction() as conn:
            rows = await outbox.unpublished(
                conn,
                own_cycles=list(own),
                older_than=self._settings.relay_takeover_seconds,
                stalled_after=self._settings.republish_seconds,
                limit=_PAGE,
            )
        if rows:
            await self._send(rows)
        if len(rows) >= _PAGE:
            return True
        # A cycle that has written again meanwhile has nudged again, and its event is still set.
        self._own -= own if not self._nudged.is_set() else set()
        return False

    async def _send(self, rows: Sequence[OutboxRow]) -> None:
        results = await self._producer.send_many([outbox_record(row) for row in rows], timeout=_SEND_SECONDS)
        crash_point("relay.after_publish")
        done = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, RecordMetadata):
                done.append(row.id)
            elif isinstance(result, DeadLetter):
                # The record is a wake-up with a copy of the text: without it the row is still found by its state.
                _log.error("outbox row fits no record", message_id=str(row.id), kind=result.kind)
                done.append(row.id)
        if done:
            async with self._database.transaction() as conn:
                await outbox.mark_published(conn, done)
            self._published.inc(len(done))
        if len(done) < len(rows):
            raise DependencyUnavailable("kafka", "unacknowledged")

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._settings.relay_seconds):
                await self._nudged.wait()
        except TimeoutError:
            pass
        self._nudged.clear()


def outbox_record(row: OutboxRow) -> Outgoing:
    """The record of a row. Its key keeps the records of one target in order."""
    message = OutboundMessage(
        id=row.id,
        instance_id=row.instance_id,
        cycle_id=row.cycle_id,
        channel=row.channel,
        target=row.target,
        text=row.text,
        created_at=row.created_at,
    )
    return Outgoing(topics.OUTBOUND, message.record_key, message.encode(), trace_headers(row.traceparent))
