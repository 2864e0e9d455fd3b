"""Watch whether the event loop still turns."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from room_common.telemetry.metrics import LOOP_LAG, gauge

MOST = 5.0
"""Seconds of lag beyond which the process counts as dead."""

_INTERVAL = 0.5


class LagWatch:
    """A timer that notes how late it comes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauge = gauge(registry, LOOP_LAG)
        self._task: asyncio.Task[None] | None = None
        self._due = 0.0
        self._last = 0.0

    def start(self) -> None:
        self._due = asyncio.get_running_loop().time() + _INTERVAL
        self._task = asyncio.create_task(self._run(), name="event-loop-lag")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def seconds(self) -> float:
        """The lag now: of the timer that is due, or of the last one if that was later."""
        if self._task is None:
            return 0.0
        return max(self._last, asyncio.get_running_loop().time() - self._due)

    def failing(self) -> str | None:
        """Why the process counts as dead, or None."""
        lag = self.seconds()
        return f"blocked for {lag:.1f} s" if lag > MOST else None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, self._due - loop.time()))
            self._last = max(0.0, loop.time() - self._due)
            self._gauge.set(self._last)
            self._due = loop.time() + _INTERVAL
