"""Keeps the leases of this process, in a thread and on a connection of its own.

The event loop may be busy and the pool exhausted: neither may cost a lease. The reverse is watched from the event loop:
a lease that was not renewed for ``fence_seconds`` on the monotonic clock is given up here, well before PostgreSQL lets
anybody else have it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from room_common.errors import DependencyUnavailable
from room_common.postgres.lease_connection import LeaseConnection
from room_common.postgres.leases import Lease
from room_common.postgres.settings import DatabaseSettings
from room_common.service.parts import Part

Loss = Literal["fenced", "taken"]

_RETRY_SECONDS: Final = 1.0
_WATCH_SECONDS: Final = 0.25
_JOIN_SECONDS: Final = 2.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    renewed_at: float
    on_loss: Callable[[Loss], None]
    missed: bool = False


class LeaseKeeper(Part):
    """Renews what is held. ``on_loss`` of a lease is called once, in the event loop, when it can't be counted on."""

    name = "leases"

    def __init__(
        self,
        settings: DatabaseSettings,
        owner: str,
        *,
        lease_seconds: float,
        renew_seconds: float,
        fence_seconds: float,
    ) -> None:
        self._connection = LeaseConnection(settings, "room-runner-leases")
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._fence_seconds = fence_seconds
        self._lock = threading.Lock()
        self._held: dict[Lease, _Held] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._renew_forever, name="leases", daemon=True)
        self._thread.start()
        self._watch = asyncio.create_task(self._fence(), name="lease-fence")

    async def stop(self) -> None:
        self._ending.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    def alive(self) -> str | None:
        if self._thread is not None and not self._thread.is_alive() and not self._ending.is_set():
            return "the thread that renews leases ended"
        return None

    def hold(self, lease: Lease, since: float, on_loss: Callable[[Loss], None]) -> None:
        """Keep ``lease``, which was asked for at ``since`` (monotonic)."""
        with self._lock:
            self._held[lease] = _Held(since, on_loss)

    def drop(self, lease: Lease) -> None:
        """Keep it no more. Nothing happens for a lease that was lost."""
        with self._lock:
            self._held.pop(lease, None)

    async def _fence(self) -> None:
        while True:
            now = time.monotonic()
            with self._lock:
                late = [lease for lease, held in self._held.items() if now - held.renewed_at > self._fence_seconds]
            for lease in late:
                self._lose(lease, "fenced")
            await asyncio.sleep(_WATCH_SECONDS)

    def _lose(self, lease: Lease, loss: Loss) -> None:
        with self._lock:
            held = self._held.pop(lease, None)
        if held is not None:
            _log.warning("lease lost", reason=loss, instance_id=str(lease.instance_id), epoch=lease.epoch)
            held.on_loss(loss)

    def _renew_forever(self) -> None:
        """All leases every ``renew_seconds``; those in between that the last look left open, and only those: where
        cycles end all the time there always are some, and each renewal is a write to the room's row."""
        retry = min(_RETRY_SECONDS, self._renew_seconds)
        all_at, left = time.monotonic(), frozenset[Lease]()
        while not self._ending.is_set():
            now = time.monotonic()
            with self._lock:
                held = [lease for lease in self._held if now >= all_at or lease in left]
            if now >= all_at:
                all_at = now + self._renew_seconds
            left = frozenset()
            if held:
                try:
                    left = self._renew(held)
                except DependencyUnavailable as error:
                    left = frozenset(held)
                    _log.warning("leases not renewed", reason=str(error), leases=len(held))
            wait = max(0.0, all_at - time.monotonic())
            self._ending.wait(min(wait, retry) if left else wait)
        self._connection.close()

    def _renew(self, held: list[Lease]) -> frozenset[Lease]:
        """Renew; returns what wants another look soon: rows that were locked, and those that are no longer ours.

        A lease is taken for lost at the second look only: at the first, its cycle may just have given the room back.
        """
        started = time.monotonic()
        renewal = self._connection.renew(self._owner, held, self._lease_seconds)
        with self._lock:
            for lease in renewal.renewed:
                if lease in self._held:
                    self._held[lease].renewed_at = started
            gone = [lease for lease in held if lease not in renewal.renewed | renewal.busy and lease in self._held]
            taken = [lease for lease in gone if self._held[lease].missed]
            for lease in gone:
                self._held[lease].missed = True
        assert self._loop is not None
        for lease in taken:
            self._loop.call_soon_threadsafe(self._lose, lease, "taken")
        return renewal.busy | frozenset(gone).difference(taken)
