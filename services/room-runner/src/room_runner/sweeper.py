"""Ends leases that ran out: fences the lost worker, abandons its cycle and wakes the room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.postgres import cycles
from room_common.postgres.database import Database
from room_common.postgres.leases import Backoff
from room_common.service.parts import Loop
from room_common.telemetry.metrics import counter
from room_runner.metrics import CYCLES, SWEPT

_AFTER_OUTAGE_SECONDS: Final = 10.0
"""While PostgreSQL was away no lease could be renewed. Workers that live get so long to give theirs back unharmed."""

_log = structlog.get_logger(__name__)


class Sweeper(Loop):
    """Looks every few seconds, over all rooms and for all workers."""

    name = "sweeper"

    def __init__(
        self,
        database: Database,
        registry: CollectorRegistry,
        *,
        seconds: float,
        backoff: Backoff,
        awake: Callable[[], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._seconds = seconds
        self._backoff = backoff
        self._awake = awake
        self._swept = counter(registry, SWEPT)
        self._cycles = counter(registry, CYCLES)

    async def run(self) -> None:
        """Sweep until stopped."""
        wait = self._seconds
        away = False
        while await self.pause(wait):
            wait = self._seconds
            try:
                if away:
                    async with self._database.transaction() as conn:
                        await conn.execute("select 1")
                    away = False
                    wait = max(self._seconds, _AFTER_OUTAGE_SECONDS)
                    continue
                await self.sweep()
            except DependencyUnavailable as error:
                away = True
                wait = min(self._seconds, 1.0)
                _log.warning("leases not swept", reason=str(error))

    async def sweep(self) -> int:
        """End every lease that has run out; how many."""
        count = 0
        while True:
            async with self._database.transaction() as conn:
                swept = await cycles.sweep_one(conn, self._backoff)
            if swept is None:
                return count
            count += 1
            self._swept.inc()
            if swept.cycle_id is not None:
                self._cycles.labels("abandoned").inc()
            _log.warning(
                "lease swept",
                instance_id=str(swept.instance_id),
                worker=swept.worker,
                cycle_id=str(swept.cycle_id) if swept.cycle_id else None,
            )
            self._awake()
