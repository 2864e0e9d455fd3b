"""Once a day in UTC: partitions, the activity log, and what is old."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import date, datetime
from typing import Final

from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.postgres import job_runs
from room_common.postgres.database import Database
from room_common.postgres.upkeep import KINDS, Pace, Result, Upkeep
from room_common.service.parts import Loop
from room_common.telemetry.metrics import counter, gauge, histogram
from room_common.telemetry.tracing import span
from room_compactor.domain.outcome import Outcome, outcome_of
from room_compactor.metrics import ROWS, RUN_DURATION, RUNS, SUCCESS
from room_compactor.settings import UpkeepSettings

_log = logging.getLogger(__name__)
_AWAY_PAUSE: Final = 5.0


class DailyRun(Loop):
    """Looks now and then whether today's work is done, and takes part in what is not.

    Days on which no compactor ran are not made up: the next run finds everything that is due by then. The partitions
    are looked at when a process starts, too, since a ledger without them works, but grows where it should not.
    """

    name = "daily"

    def __init__(
        self, database: Database, settings: UpkeepSettings, registry: CollectorRegistry, instance: str
    ) -> None:
        super().__init__()
        self._database = database
        self._settings = settings
        self._instance = instance
        self._runs = counter(registry, RUNS)
        self._duration = histogram(registry, RUN_DURATION)
        self._rows = counter(registry, ROWS)
        self._success = gauge(registry, SUCCESS)
        for outcome in Outcome:
            self._runs.labels(outcome.value)
        for kind in KINDS:
            self._rows.labels(kind)
        pace = Pace(
            instances=settings.batch_instances,
            daily_rows=settings.batch_daily_rows,
            rows=settings.batch_rows,
            pause_seconds=settings.pause_seconds,
        )
        self._upkeep = Upkeep(database, pace, pause=self.pause, counted=self._count)
        self._jobs: dict[str, Callable[[date], Awaitable[Result]]] = {
            "partitions": lambda _: self._upkeep.partitions(),
            "aging": self._upkeep.age,
            "retention": lambda _: self._upkeep.retain(),
        }
        self._successes = dict.fromkeys(self._jobs, 0.0)
        self._fresh = True

    async def run(self) -> None:
        """Look, work, wait."""
        wait = 0.0
        while wait == 0.0 or await self.pause(wait):
            wait = await self._look()

    async def _look(self) -> float:
        """Do what is to be done. Returns the seconds until the next look."""
        began = time.monotonic()
        results, away = [], False
        for job, work in self._jobs.items():
            # One that fails, or can't get a lock, keeps no other from its turn.
            try:
                results.append(await self._work(job, work))
            except DependencyUnavailable as error:
                _log.warning("daily job put off", extra={"job": job, "reason": str(error)})
                results.append(Result(done=False, failures=1))
                away = True
            except Exception as error:
                # Without its text, which may repeat what is in a row.
                _log.error("daily job failed", extra={"job": job, "kind": type(error).__name__})
                results.append(Result(done=False, failures=1))
        outcome = outcome_of([(result.done, result.failures) for result in results if result is not None])
        if outcome is not None:
            seconds = time.monotonic() - began
            self._runs.labels(outcome.value).inc()
            self._duration.observe(seconds)
            _log.info("daily run ended", extra={"outcome": outcome.value, "seconds": round(seconds, 3)})
        if away:
            return min(_AWAY_PAUSE, self._settings.check_seconds)
        return self._settings.retry_seconds if outcome is Outcome.FAILED else self._settings.check_seconds

    async def _work(self, job: str, work: Callable[[date], Awaitable[Result]]) -> Result | None:
        """Take part in a job; None when it is done already, or this process is told to stop."""
        if self.stopping.is_set():
            return None
        fresh = self._fresh and job == "partitions"
        async with self._database.transaction() as conn:
            state = await job_runs.state(conn, job)
            self._note(job, state.last_success)
            if state.done and not fresh:
                return None
            await job_runs.begin(conn, job, state.today)
        with span(f"run {job}"):
            result = await work(state.today)
        if fresh:
            self._fresh = False
        if result.done and not result.failures:
            crash_point("compactor.before_finish")
            async with self._database.transaction() as conn:
                await job_runs.finish(conn, job, state.today, self._instance)
                self._note(job, (await job_runs.state(conn, job)).last_success)
        return result

    def _note(self, job: str, success: datetime | None) -> None:
        self._successes[job] = success.timestamp() if success is not None else 0.0
        self._success.set(min(self._successes.values()))

    def _count(self, kind: str, rows: int) -> None:
        self._rows.labels(kind).inc(rows)
