"""Takes tick commands: one batch wakes its rooms in one statement, then the offsets are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry

from room_common.contracts.messages import TickCommand, read
from room_common.errors import DeadLetter
from room_common.kafka.records import Record
from room_common.kafka.spans import process_batch_span
from room_common.postgres import rooms
from room_common.postgres.database import Database
from room_common.telemetry.metrics import counter
from room_common.telemetry.tracing import traceparent_now
from room_runner.metrics import TICKS

GROUP: Final = "room-runner"
"""The consumer group of ticks."""

_log = structlog.get_logger(__name__)


class TickIntake:
    """Handles batches of ``room.ticks``. A tick carries no state, so what can't be read is dropped, and said."""

    def __init__(self, database: Database, registry: CollectorRegistry, *, awake: Callable[[], None]) -> None:
        self._database = database
        self._awake = awake
        self._ticks = counter(registry, TICKS)

    async def handle(self, records: Sequence[Record]) -> None:
        """Wake the rooms of the batch. Raises ``DependencyUnavailable``; the batch then comes again."""
        with process_batch_span(records, GROUP):
            await self._take(records)

    async def _take(self, records: Sequence[Record]) -> None:
        waking: set[UUID] = set()
        urgent: set[UUID] = set()
        for record in records:
            try:
                command = read(TickCommand, record.value)
            except DeadLetter as error:
                _log.warning("tick dropped", kind=error.kind, partition=record.partition, offset=record.offset)
                self._ticks.labels("unreadable").inc()
                continue
            self._ticks.labels(command.reason).inc()
            (urgent if command.reason == "manual" else waking).add(command.instance_id)
        if not waking and not urgent:
            return
        async with self._database.transaction() as conn:
            await rooms.wake(conn, waking, urgent, woken_by=traceparent_now())
        self._awake()
