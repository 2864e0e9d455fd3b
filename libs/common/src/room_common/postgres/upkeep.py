"""Daily upkeep of the database: partitions, the aging of the activity log, retention; batch after batch.

Every batch claims, works and commits in one short transaction. A process that dies leaves nothing half done and nothing
claimed; any number of them may work at the same time, and each passes over what another one holds.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final
from uuid import UUID

from room_common.domain.aging import AgingLimits, aging_limits
from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.postgres import compaction, job_runs, partitions, retention
from room_common.postgres.compaction import Window
from room_common.postgres.database import Connection, Database

_log = logging.getLogger(__name__)
_HELD_PAUSE: Final = 0.5
_WINDOW: Final = 10_000
_FIRST_BATCH: Final = 100
_MOST_SKIPPED: Final = 100
"""Instances that may be at fault themselves; with more of them the fault is elsewhere."""

KINDS: Final = ("partitions_made", "partitions_dropped", "daily", "weekly", "monthly", *retention.KINDS)
"""Everything that is counted."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a transaction does, and how long to leave the database alone between two that delete.

    Aging takes up to ``instances`` and about as many as have ``daily_rows``; deleting takes ``rows``.
    """

    instances: int = 5000
    daily_rows: int = 250_000
    rows: int = 1000
    pause_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """``done``: it came to the end. ``failures``: what was passed over, being at fault itself."""

    done: bool
    failures: int = 0


class _Stopped(Exception):
    """Somebody asked to stop."""


class Upkeep:
    """The three jobs. Each may be called at any time and again; ``DependencyUnavailable`` ends it, to be called again.

    ``pause`` sleeps, and returns False when work should stop. ``counted`` hears of every kind and number of rows after
    their commit.
    """

    def __init__(
        self,
        database: Database,
        pace: Pace,
        *,
        pause: Callable[[float], Awaitable[bool]],
        counted: Callable[[str, int], None],
    ) -> None:
        self._database = database
        self._pace = pace
        self._pause = pause
        self._counted = counted
        self._batch = min(_FIRST_BATCH, pace.instances)

    async def partitions(self) -> Result:
        """Make the ledger's partitions ahead, and drop those whose days are over."""
        async with self._database.transaction() as conn:
            made = await partitions.ensure(conn)
        self._counted("partitions_made", made)
        async with self._database.transaction() as conn:
            names = await partitions.outdated(conn)
        for name in names:
            async with self._database.transaction() as conn:
                dropped = await partitions.drop(conn, name)
            crash_point("compactor.after_drop")
            self._counted("partitions_dropped", int(dropped))
        return Result(done=True)

    async def today(self) -> date:
        """The day in UTC, by the database's clock."""
        async with self._database.transaction() as conn:
            return (await job_runs.state(conn, "aging")).today

    async def count_due(self) -> dict[str, int]:
        """How many rows of each kind are due, without touching any. May read whole tables."""
        limits = aging_limits(await self.today())
        async with self._database.transaction() as conn:
            due = await compaction.count_due(conn, limits)
            due |= await retention.count(conn)
            due["partitions_dropped"] = len(await partitions.outdated(conn))
            due["partitions_made"] = await partitions.count_missing(conn)
        return {kind: due[kind] for kind in KINDS}

    async def age(self, today: date) -> Result:
        """Bring the activity log of every instance to what it should be on ``today``, a day in UTC."""
        limits = aging_limits(today)
        skip: list[UUID] = []
        try:
            while True:
                held = False
                async for window in self._windows():
                    held |= await self._age_window(window, limits, skip)
                if not held:
                    return Result(done=True, failures=len(skip))
                # Others work on the rest. Wait for them: should they die, it is left to us.
                await self._rest(_HELD_PAUSE)
        except _Stopped:
            return Result(done=False, failures=len(skip))

    async def retain(self) -> Result:
        """Delete everything that is older than its table keeps it."""
        failures = 0
        try:
            for rule in retention.RULES:
                failures += await self._delete(rule.kind, self._pace.rows, partial(retention.delete_some, rule))
            # Each has tens of messages.
            failures += await self._delete("cycles", max(1, self._pace.rows // 10), retention.delete_cycles)
            return Result(done=True, failures=failures + await self._instances())
        except _Stopped:
            return Result(done=False, failures=failures)

    async def _windows(self) -> AsyncIterator[Window]:
        after = UUID(int=0)
        while True:
            async with self._database.transaction() as conn:
                window = await compaction.next_window(conn, after, _WINDOW)
            if window is None:
                return
            yield window
            after = window.until

    async def _age_window(self, window: Window, limits: AgingLimits, skip: list[UUID]) -> bool:
        """Age what can be had of a window. True when others hold a part of it."""
        async with self._database.transaction() as conn:
            due = await compaction.find_due(conn, window, limits, skip)
        held = False
        while due:
            batch = due[: self._batch]
            claimed: Sequence[UUID] = batch
            taken: Mapping[str, int] = {}
            alone = self._pace.daily_rows if len(batch) == 1 else None
            try:
                async with self._database.transaction(3 * compaction.SECONDS) as conn:
                    claimed = await compaction.claim(conn, batch)
                    if claimed:
                        taken = await compaction.age(conn, claimed, limits, alone)
                    crash_point("compactor.before_commit")
            except DependencyUnavailable as error:
                if error.kind != "statement_timeout" or len(batch) == 1:
                    raise
                self._batch = 1
                continue
            except Exception as error:
                # One bad row must not keep all others from growing old: find its instance, and go on without it.
                if len(batch) > 1:
                    self._batch = 1
                    continue
                _log.error("activity not aged", extra={"kind": type(error).__name__, "instance_id": str(batch[0])})
                if len(skip) == _MOST_SKIPPED:
                    raise
                skip.append(batch[0])
            crash_point("compactor.after_commit")
            for kind, rows in taken.items():
                self._counted(kind, rows)
            held |= len(claimed) < len(batch)
            if alone is None or taken.get("daily", 0) < alone:
                due = due[len(batch) :]
                self._adapt(len(batch), taken.get("daily", 0))
            await self._rest(0.0)
        return held

    def _adapt(self, size: int, daily_rows: int) -> None:
        """Batches of about as many rows as one transaction should take, however many an instance has.

        The fewer the batches, the less often the same pages are visited: rows of all instances lie side by side.
        """
        fitting = size * self._pace.daily_rows * 4 // 5 // max(1, daily_rows)
        self._batch = max(1, min(fitting, size * 2, self._pace.instances))

    async def _delete(self, kind: str, limit: int, delete: Callable[[Connection, int], Awaitable[int]]) -> int:
        """Delete batches until one is not full. Returns 1 where the kind can't be deleted by its own fault."""
        try:
            while True:
                async with self._database.transaction() as conn:
                    deleted = await delete(conn, limit)
                    crash_point("compactor.before_delete_commit")
                self._counted(kind, deleted)
                await self._rest(self._pace.pause_seconds)
                if deleted < limit:
                    return 0
        except (DependencyUnavailable, _Stopped):
            raise
        except Exception as error:
            _log.error("rows not deleted", extra={"rows": kind, "kind": type(error).__name__})
            return 1

    async def _instances(self) -> int:
        skip: list[UUID] = []
        while True:
            claimed: UUID | None = None
            try:
                async with self._database.transaction() as conn:
                    claimed = await retention.claim_purgeable(conn, skip)
                    if claimed is None:
                        return len(skip)
                    deleted = await retention.purge_instance(conn, claimed, self._pace.rows)
                    crash_point("compactor.before_purge_commit")
            except DependencyUnavailable:
                raise
            except Exception as error:
                _log.error("instance not purged", extra={"kind": type(error).__name__})
                if claimed is None:
                    raise
                skip.append(claimed)
                continue
            self._counted("instances", deleted)
            await self._rest(self._pace.pause_seconds)

    async def _rest(self, seconds: float) -> None:
        if not await self._pause(seconds):
            raise _Stopped
