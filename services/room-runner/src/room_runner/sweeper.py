"""Ends leases that ran out: fences the lost worker and wakes the room, whose cycle is resumed or at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.postgres import resuming
from room_common.postgres.database import Database
from room_common.postgres.leases import Backoff
from room_common.postgres.resuming import Swept
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
        max_resumes: int,
        awake: Callable[[], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._seconds = seconds
        self._backoff = backoff
        self._max_resumes = max_resumes
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
        """End every lease that has run out, and see to cycles that nobody would resume; how many leases."""
        count = 0
        while True:
            async with self._database.transaction() as conn:
                swept = await resuming.sweep_one(conn, self._backoff, self._max_resumes)
            if swept is None:
                break
            count += 1
            self._swept.inc()
            self._tell("lease swept", swept)
        while True:
            async with self._database.transaction() as conn:
                stray = await resuming.sweep_stray(conn)
            if stray is None:
                return count
            self._tell("cycle without a worker seen to", stray)

    def _tell(self, what: str, swept: Swept) -> None:
        if swept.ended is not None:
            self._cycles.labels("abandoned").inc()
        _log.warning(
            what,
            instance_id=str(swept.instance_id),
            worker=swept.worker,
            cycle_id=str(swept.cycle_id) if swept.cycle_id else None,
            ended=swept.ended,
        )
        self._awake()
