"""The cycle slots of a worker: claims rooms while a slot is free and the model provider answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable, LeaseLost
from room_common.faults import crash_point
from room_common.postgres import leases, rooms
from room_common.postgres.leases import Lease
from room_common.service.parts import Loop
from room_runner.cycle import Cycle
from room_runner.desk import Desk
from room_runner.keeper import LeaseKeeper, Loss
from room_runner.metrics import SlotMetrics

_STOP_SECONDS: Final = 10.0
"""To give back what did not end in time."""
_FENCED_SECONDS: Final = 60.0
"""How long a worker that could not renew tries to give the room back: the sweep would count a lost worker."""
_RETRY_SECONDS: Final = 1.0
_JUST_AWAKE_SECONDS: Final = 0.005
"""After the moment a room wakes up at: a look a little before it would find nothing."""
_CLAIMED_AT_ONCE: Final = 8
"""Enough to fill a process with slots soon, and few enough to leave rooms to the others."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Slot:
    cycle: Cycle
    task: asyncio.Task[str]
    loss: Loss | None = None


class Slots(Loop):
    """Claims, runs and ends cycles. Any worker takes any room, whatever partition its tick came from."""

    name = "slots"

    def __init__(
        self,
        desk: Desk,
        keeper: LeaseKeeper,
        metrics: SlotMetrics,
        *,
        owner: str,
    ) -> None:
        super().__init__()
        self._desk = desk
        self._settings = desk.settings
        self._keeper = keeper
        self._metrics = metrics
        self._owner = owner
        self._poked = asyncio.Event()
        self._next_look = self._settings.claim_seconds
        self._slots: set[_Slot] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self.stop_timeout = self._settings.drain_seconds + _STOP_SECONDS + 10.0
        self._show()

    @property
    def busy(self) -> int:
        """Cycles under way."""
        return len(self._watchers)

    def poke(self) -> None:
        """There may be something to claim."""
        self._poked.set()

    def circuit_changed(self, closed: bool) -> None:
        """The model provider came or went."""
        self._metrics.held.set(0 if closed else 1)
        self.poke()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self._ending():
            claimed = False
            try:
                claimed = await self._claim()
            except DependencyUnavailable as error:
                _log.warning("no room claimed", reason=str(error))
                await self.pause(_RETRY_SECONDS)
            if not claimed and not self._ending():
                await self._wait()

    async def stop(self) -> None:
        """Let cycles reach the end of a step; give back those that do not in time."""
        self.stopping.set()
        self.poke()
        await super().stop()
        if self._watchers:
            _log.info("waiting for cycles", count=len(self._watchers))
            await asyncio.wait(set(self._watchers), timeout=self._settings.drain_seconds)
        for slot in list(self._slots):
            slot.task.cancel()
        if self._watchers:
            await asyncio.wait(set(self._watchers), timeout=_STOP_SECONDS)

    def _ending(self) -> bool:
        return self.stopping.is_set() or self._desk.draining.is_set()

    async def _claim(self) -> bool:
        """Take rooms and start their cycles; False when there is no slot, no provider or no room."""
        self._next_look = self._settings.claim_seconds
        free = self._settings.slots - self.busy
        if free <= 0 or not self._desk.provider.closed:
            return False
        asked_at = time.monotonic()
        async with self._desk.database.transaction() as conn:
            claimed = await leases.claim_many(
                conn, self._owner, self._settings.lease_seconds, min(free, _CLAIMED_AT_ONCE)
            )
            if not claimed and (soon := await rooms.seconds_to_wake(conn)) is not None:
                self._next_look = min(self._next_look, soon + _JUST_AWAKE_SECONDS)
        if not claimed:
            return False
        crash_point("runner.after_claim")
        for lease in claimed:
            self._begin(lease, asked_at)
        self._show()
        return True

    def _begin(self, lease: Lease, asked_at: float) -> None:
        cycle = Cycle(self._desk, lease, asked_at, lambda: self._keeper.drop(lease))
        slot = _Slot(cycle, asyncio.create_task(cycle.run(), name=f"cycle-{lease.instance_id}"))

        def lost(loss: Loss) -> None:
            slot.loss = loss
            slot.task.cancel()

        self._keeper.hold(lease, asked_at, lost)
        self._slots.add(slot)
        watcher = asyncio.create_task(self._watch(slot), name=f"watch-{lease.instance_id}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._ended)

    async def _watch(self, slot: _Slot) -> None:
        """See a cycle to its end, whatever that is."""
        cycle = slot.cycle
        try:
            await asyncio.wait({slot.task})
            self._slots.discard(slot)
            if slot.loss is not None:
                self._metrics.lost.labels(slot.loss).inc()
            if slot.task.cancelled():
                await self._give_back(slot)
            elif (error := slot.task.exception()) is not None:
                if not isinstance(error, LeaseLost):
                    # Nothing more is known of it: its lease runs out and the sweep settles it.
                    _log.error("cycle broke off", cycle_id=str(cycle.id), exc_info=error)
                else:
                    _log.warning("cycle stopped: another worker has the room", cycle_id=str(cycle.id))
        finally:
            self._slots.discard(slot)
            self._keeper.drop(cycle.lease)

    async def _give_back(self, slot: _Slot) -> None:
        cycle = slot.cycle
        kind = "lease_fenced" if slot.loss is not None else "released"
        try:
            async with asyncio.timeout(_FENCED_SECONDS if slot.loss is not None else _STOP_SECONDS):
                await cycle.give_back(kind)
        except LeaseLost:
            _log.info("nothing to give back", cycle_id=str(cycle.id))
        except TimeoutError:
            _log.warning("room not given back", cycle_id=str(cycle.id))
        else:
            _log.info("room given back", cycle_id=str(cycle.id), kind=kind)

    def _ended(self, watcher: asyncio.Task[None]) -> None:
        self._watchers.discard(watcher)
        if not watcher.cancelled() and (error := watcher.exception()) is not None:
            self.fail(error)
        self._show()
        self.poke()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._next_look):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()

    def _show(self) -> None:
        self._metrics.slots.labels("busy").set(self.busy)
        self._metrics.slots.labels("free").set(max(0, self._settings.slots - self.busy))
