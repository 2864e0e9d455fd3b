"""The overflow table's side of ingest that reads: what is in it goes to Kafka once Kafka answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from aiokafka.partitioner import murmur2

from room_common.errors import DependencyUnavailable
from room_common.postgres.overflow import BEGINNING, OverflowRecord
from room_common.postgres.overflow_connection import OverflowConnection
from room_common.service.parts import Loop
from room_ingest.metrics import IngestMetrics
from room_ingest.overflow import Overflow
from room_ingest.settings import OverflowSettings
from room_ingest.sink import Parcel, RecordSink

MAX_BYTES: Final = 1 << 20
"""Of one claim."""
STEP_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 1.0
"""Between looks at the table while Kafka does not answer, which is when it is needed."""
PAUSE_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 1.0
SLICE: Final = 50
"""Records submitted in one turn of the loop, so that requests get theirs."""

log = structlog.get_logger(__name__)


class Drained(Parcel):
    """A record on its way from the table to Kafka."""

    __slots__ = ("_told", "written")

    def __init__(self, record: OverflowRecord, told: Callable[[], None]) -> None:
        self.key, self.value, self.headers = record.key, record.value, record.headers
        self.spread = murmur2(record.key) & 0x7FFF_FFFF
        self.written = False
        self._told = told

    def done(self, written: bool) -> None:
        self.written = written
        self._told()


class Drain(Loop):
    """Claims the oldest records, a few at a time, submits them as requests do, and deletes what Kafka acknowledged.

    Between two claims it rests as long as one took: requests get at least half of everything. Several processes may
    drain at once, each what the others have not locked. A process that ends between Kafka's answer and the commit
    leaves a record in both places; its id is the same. While Kafka is away it looks whether the table is there.
    """

    name = "overflow-drain"

    def __init__(
        self,
        connection: OverflowConnection,
        settings: OverflowSettings,
        overflow: Overflow,
        sinks: Mapping[str, RecordSink],
        problem: Callable[[], str | None],
        metrics: IngestMetrics,
        *,
        acknowledge_seconds: float,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._settings = settings
        self._overflow = overflow
        self._sinks = sinks
        self._problem = problem
        self._metrics = metrics
        self._seconds = acknowledge_seconds + settings.write_seconds + 2.0
        self.grace = self._seconds
        self.stop_timeout = self._seconds + 3.0
        self._away: str | None = "not asked yet"
        self._next_look = 0.0
        self._after = BEGINNING
        self._fruitful = False
        """Whether something was written since the oldest record was claimed."""

    def ready(self) -> str | None:
        """Kafka or the table takes records."""
        problem = self._problem()
        return problem and self._away and f"{problem}; overflow table: {self._away}"

    async def run(self) -> None:
        rest = STEP_SECONDS
        while await self.pause(rest):
            try:
                async with asyncio.timeout(self._seconds + self._settings.connect_seconds + 1.0):
                    rest = await self._step()
            except (DependencyUnavailable, TimeoutError) as error:
                kind = error.kind if isinstance(error, DependencyUnavailable) else "timeout"
                if self._away != kind:
                    log.warning("the overflow table does not answer", kind=kind)
                self._away = kind
                self._overflow.touched = True  # it may well hold something
                rest = RETRY_SECONDS
        await self._connection.close()

    async def _step(self) -> float:
        """Do what there is to do. Returns the seconds to rest."""
        now = asyncio.get_running_loop().time()
        if self._problem() is not None:
            await self._look()
            return LOOK_SECONDS
        if not self._overflow.touched and now < self._next_look:
            return STEP_SECONDS
        self._overflow.touched = False
        begun_at = self._after
        submitted, written = await self._drain()
        self._fruitful = self._fruitful or written > 0
        if submitted or begun_at != BEGINNING:
            self._overflow.touched = True
            if self._after == BEGINNING and not self._fruitful:
                return RETRY_SECONDS
            self._fruitful = self._fruitful and self._after != BEGINNING
            return max(PAUSE_SECONDS, asyncio.get_running_loop().time() - now)
        await self._look()
        await self._connection.close()
        self._next_look = now + self._settings.look_seconds
        return STEP_SECONDS

    async def _look(self) -> None:
        total = await self._connection.total()
        self._metrics.overflow = total
        full = total.rows >= self._settings.max_rows or total.bytes >= self._settings.max_bytes
        self._away = "full" if full else None

    async def _drain(self) -> tuple[int, int]:
        """One claim, behind the last one, since its records may be such as Kafka does not take now; behind the newest
        comes the oldest again. Returns how many records were submitted, and how many of them are written."""
        settings = self._settings
        limits = {"rows": settings.drain_rows, "bytes": MAX_BYTES}
        async with self._connection.claim(**limits, seconds=self._seconds, after=self._after) as claim:
            self._away = None
            parcels = await self._submit(claim.records)
            pairs = zip(claim.records, parcels, strict=True)
            claim.done += [record.id for record, parcel in pairs if parcel.written]
        self._after = claim.records[-1].id if claim.records else BEGINNING
        self._metrics.overflowed["drained"] += len(claim.done)
        if claim.records:
            self._metrics.overflow = await self._connection.total()
        return len(claim.records), len(claim.done)

    async def _submit(self, records: Sequence[OverflowRecord]) -> list[Drained]:
        """Submit all, and wait until Kafka has acknowledged each or did not in time."""
        left = len(records)
        over = asyncio.Event()

        def told() -> None:
            nonlocal left
            left -= 1
            if not left:
                over.set()

        parcels = [Drained(record, told) for record in records]
        for number, (record, parcel) in enumerate(zip(records, parcels, strict=True), start=1):
            sink = self._sinks.get(record.topic)
            if sink is None:
                log.error("the overflow table holds a record of an unknown topic", id=str(record.id))
                told()
            else:
                sink.submit(parcel)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        if records:
            await over.wait()
        return parcels
