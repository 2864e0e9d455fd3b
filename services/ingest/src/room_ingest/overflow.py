"""The overflow table's side of ingest that writes: records Kafka did not acknowledge, all that wait in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from room_common.errors import DependencyUnavailable
from room_common.postgres.overflow import OverflowRecord
from room_common.postgres.overflow_connection import OverflowConnection, OverflowFull
from room_common.service.parts import Part
from room_ingest.domain.request_headers import id_in
from room_ingest.metrics import IngestMetrics
from room_ingest.settings import OverflowSettings
from room_ingest.sink import Parcel, Stored

MAX_ROWS: Final = 500
MAX_BYTES: Final = 4 << 20
"""Of one commit."""
SHUT_SECONDS: Final = 1.0
"""How long nothing is taken after a failure, so that senders are not kept waiting for the next one."""
IDLE_SECONDS: Final = 10.0

log = structlog.get_logger(__name__)


class _Waiting(NamedTuple):
    record: OverflowRecord
    stored: Stored


class Overflow(Part):
    """Takes records and says once they are committed, or that they can't be. What waits here is bounded by whoever
    submits it. Nothing is connected before the first record, and not for long after the last one."""

    name = "overflow"

    def __init__(self, connection: OverflowConnection, settings: OverflowSettings, metrics: IngestMetrics) -> None:
        self._connection = connection
        self._settings = settings
        self._metrics = metrics
        self._limit = settings.connect_seconds + settings.write_seconds
        self.stop_timeout = self._limit + 3.0
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._write: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._shut_until = 0.0
        self._open = False
        self.touched = False
        """Something was written since whoever drains last set this to False."""

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = True

    async def stop(self) -> None:
        self._open = False
        if self._idle is not None:
            self._idle.cancel()
        tasks = {task for task in (self._writer, self._write) if task is not None}
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=self._limit + 1.0)
            for task in pending:
                task.cancel()
        await self._connection.close()

    def take(self, topic: str, parcel: Parcel, stored: Stored) -> bool:
        """See ``intake.Refuge``."""
        abandoned = self._writer is None and self._write is not None
        if not self._open or abandoned or self._loop.time() < self._shut_until:
            self._metrics.overflowed["refused"] += 1
            return False
        record = OverflowRecord(id_in(parcel.headers), topic, parcel.key, parcel.value, parcel.headers)
        self._waiting.append(_Waiting(record, stored))
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_all(), name="overflow-writer")
        return True

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever becomes late in the same turn is in the same commit
                batch = self._next_batch()
                if not await self._written([waiting.record for waiting in batch]):
                    self._shut_until = self._loop.time() + SHUT_SECONDS
                    batch += self._waiting
                    self._waiting = []
                    self._tell(batch, False)
                else:
                    self.touched = True
                    self._tell(batch, True)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._writer = None
            left, self._waiting = self._waiting, []
            self._tell(left, False)
        self._last = self._loop.time()
        if self._idle is None:
            self._idle = self._loop.call_later(IDLE_SECONDS, self._close_idle)

    def _next_batch(self) -> list[_Waiting]:
        size = count = 0
        for waiting in self._waiting[:MAX_ROWS]:
            size += waiting.record.size
            if size > MAX_BYTES and count:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _written(self, records: Sequence[OverflowRecord]) -> bool:
        """Whether the records are committed. What takes too long is left behind: until the driver has given it up,
        nothing more is taken."""
        settings = self._settings
        add = self._connection.add(records, max_rows=settings.max_rows, max_bytes=settings.max_bytes)
        self._write = self._loop.create_task(add, name="overflow-write")
        self._write.add_done_callback(self._write_ended)
        done, _ = await asyncio.wait({self._write}, timeout=self._limit + 0.2)
        if not done:
            self._write.cancel()
            log.warning("the overflow table does not answer", kind="timeout")
            return False
        write, self._write = self._write, None
        error = write.exception()
        if error is None:
            return True
        if isinstance(error, OverflowFull):
            log.error("the overflow table is full", max_rows=settings.max_rows, max_bytes=settings.max_bytes)
        elif isinstance(error, DependencyUnavailable):
            log.warning("the overflow table does not take records", kind=error.kind)
        else:
            raise error
        return False

    def _write_ended(self, write: asyncio.Task[None]) -> None:
        if self._write is write and self._writer is None:
            self._write = None
        if not write.cancelled():
            write.exception()

    def _tell(self, batch: Sequence[_Waiting], stored: bool) -> None:
        self._metrics.overflowed["stored" if stored else "refused"] += len(batch)
        for waiting in batch:
            try:
                waiting.stored(stored)
            except Exception:
                log.exception("an answer could not be given")

    def _close_idle(self) -> None:
        """Kafka answers again, or nobody sends: let the connection go."""
        self._idle = None
        if self._writer is not None or self._write is not None:
            return
        left = self._last + IDLE_SECONDS - self._loop.time()
        if left > 0:
            self._idle = self._loop.call_later(left, self._close_idle)
        else:
            self._closing = self._loop.create_task(self._connection.close(), name="overflow-close")
