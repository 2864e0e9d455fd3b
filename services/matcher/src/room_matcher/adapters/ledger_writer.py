"""Ledger rows that bring nothing into the backlog, written many at a time, each before its offset completes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from room_common.domain.deliveries import Outcome
from room_common.errors import Defect, DependencyUnavailable
from room_common.faults import crash_point
from room_common.postgres import ledger
from room_common.postgres.database import Database
from room_common.service import Loop

_QUEUE_BATCHES: Final = 4

log = structlog.get_logger(__name__)

_Waiting = tuple[ledger.Entry, "asyncio.Future[Outcome | None]"]


class LedgerWriter(Loop):
    """Collects up to ``rows`` entries or for ``seconds``, writes them in one transaction and tells who waits."""

    name = "ledger-writer"
    grace = 10.0
    stop_timeout = 15.0

    def __init__(self, database: Database, *, rows: int = 500, seconds: float = 0.1) -> None:
        super().__init__()
        self._database = database
        self._rows = rows
        self._seconds = seconds
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue(_QUEUE_BATCHES * rows)

    async def write(self, entry: ledger.Entry) -> Outcome | None:
        """Record ``entry``; returns after the commit what was recorded, None when there was a row already.

        Raises ``DependencyUnavailable`` when the database does not answer, ``Defect`` when it refuses this row.
        """
        if self.stopping.is_set():
            raise DependencyUnavailable("postgresql", "closed")
        future: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        await self._queue.put((entry, future))
        return await future

    async def run(self) -> None:
        """Write batch after batch until told to stop, then what is left."""
        going_on = True
        while going_on:
            batch, going_on = await self._collect()
            await self._flush(batch)
        while not self._queue.empty():  # came after the end was asked for
            late = self._queue.get_nowait()
            if late is not None:
                _fail([late], DependencyUnavailable("postgresql", "closed"))

    async def stop(self) -> None:
        """Write what waits, then end."""
        if self._task is not None and not self._task.done():
            self.stopping.set()
            await self._queue.put(None)
        await super().stop()

    async def _collect(self) -> tuple[list[_Waiting], bool]:
        """The next batch, and whether there will be another: one that is full, or has waited its time."""
        first = await self._queue.get()
        if first is None:
            return [], False
        batch = [first]
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(deadline):
                while len(batch) < self._rows:
                    item = self._queue.get_nowait() if not self._queue.empty() else await self._queue.get()
                    if item is None:
                        return batch, False
                    batch.append(item)
        except TimeoutError:
            pass
        return batch, True

    async def _flush(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        crash_point("matcher.before_rows")
        try:
            async with self._database.transaction() as conn:
                outcomes = await ledger.record(conn, [entry for entry, _ in batch])
                crash_point("matcher.before_rows_commit")
            crash_point("matcher.after_rows_commit")
        except DependencyUnavailable as error:
            _fail(batch, error)
        except ledger.RowRefused as error:
            await self._one_by_one(batch, error)
        else:
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)

    async def _one_by_one(self, batch: Sequence[_Waiting], error: ledger.RowRefused) -> None:
        """The database refuses a row: write each by itself, so that only that one fails."""
        if len(batch) > 1:
            for waiting in batch:
                await self._flush([waiting])
            return
        log.error("a ledger row was refused", sqlstate=error.sqlstate)
        _fail(batch, error)


def _fail(batch: Sequence[_Waiting], error: DependencyUnavailable | Defect) -> None:
    for _, future in batch:
        if not future.done():
            again = error if isinstance(error, Defect) else DependencyUnavailable(error.dependency, error.kind)
            future.set_exception(again)
