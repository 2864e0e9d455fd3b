"""Ticks: every interval one of the schedulers wakes each enabled room that has work."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Final
from uuid import UUID

from prometheus_client import CollectorRegistry

from room_common.contracts import topics
from room_common.contracts.messages import TickCommand, TickReason
from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.postgres import clock, rooms
from room_common.postgres.clock import Tick
from room_common.postgres.database import Database
from room_common.service.parts import Loop
from room_common.telemetry.metrics import counter, gauge, histogram
from room_common.telemetry.tracing import span
from room_scheduler.domain.pacing import pause_between_pages
from room_scheduler.metrics import DUE_ROOMS, FIRE_DELAY, LAST_TICK, TICKS
from room_scheduler.settings import TickSettings

_log = logging.getLogger(__name__)
_SEND_SECONDS: Final = 10.0


def tick_record(instance_id: UUID, seq: int, reason: TickReason, issued_at: datetime) -> Outgoing:
    """The record of one tick command."""
    command = TickCommand(instance_id=instance_id, seq=seq, reason=reason, issued_at=issued_at)
    return Outgoing(topics.TICKS, key=str(instance_id).encode(), value=command.encode())


class Ticker(Loop):
    """Competes for every tick, and emits those it wins.

    A process that dies while emitting leaves some rooms without their tick: they are still due at the next one.
    """

    name = "ticker"

    def __init__(
        self, database: Database, producer: Producer, settings: TickSettings, registry: CollectorRegistry
    ) -> None:
        super().__init__()
        self._database = database
        self._producer = producer
        self._settings = settings
        self._ticks = counter(registry, TICKS).labels("pending")
        self._delay = histogram(registry, FIRE_DELAY)
        self._last = gauge(registry, LAST_TICK)
        self._due = gauge(registry, DUE_ROOMS)

    async def run(self) -> None:
        """Tick until stopped. A dependency that is away costs ticks, which are not made up."""
        while not self.stopping.is_set():
            try:
                async with self._database.transaction() as conn:
                    wait = await clock.seconds_to_next(conn, self._settings.tick_seconds)
                if not await self.pause(wait):
                    return
                await self._compete()
            except DependencyUnavailable as error:
                _log.warning("tick not emitted", extra={"reason": str(error)})
                await self.pause(1.0)

    async def _compete(self) -> None:
        async with self._database.transaction() as conn:
            tick = await clock.win_tick(conn, self._settings.tick_seconds)
        if tick is None:
            return
        now = tick.now.timestamp()
        self._last.set(now)
        self._delay.observe(max(0.0, now - tick.seq * self._settings.tick_seconds))
        crash_point("scheduler.after_win")
        began = time.monotonic()
        with span("emit ticks", attributes={"room.tick.seq": tick.seq}) as emission:
            emitted = await self._emit(tick)
            emission.set_attribute("room.tick.rooms", emitted)
        self._due.set(emitted)
        if emitted != tick.expected:
            async with self._database.transaction() as conn:
                await clock.note_rooms(conn, emitted)
        if emitted:
            took = round(time.monotonic() - began, 3)
            _log.info("tick emitted", extra={"seq": tick.seq, "rooms": emitted, "seconds": took})

    async def _emit(self, tick: Tick) -> int:
        page = self._settings.page
        pause = pause_between_pages(self._settings.tick_seconds, self._settings.spread, page, tick.expected)
        emitted, after = 0, None
        while True:
            async with self._database.transaction() as conn:
                due = await rooms.due_page(conn, after, page)
            if not due:
                return emitted
            results = await self._producer.send_many(
                [tick_record(room, tick.seq, "pending", tick.now) for room in due], timeout=_SEND_SECONDS
            )
            crash_point("scheduler.mid_emission")
            sent = sum(isinstance(result, RecordMetadata) for result in results)
            self._ticks.inc(sent)
            emitted += sent
            if sent < len(due):
                # Rooms without their tick are still due at the next one; a broker in trouble is not pressed further.
                raise DependencyUnavailable("kafka", "unacknowledged")
            after = due[-1]
            if len(due) < page or (pause and not await self.pause(pause)):
                return emitted
