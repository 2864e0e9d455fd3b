"""Places for model calls, shared fairly: nobody holds more than its part, and those who wait take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairSlots:
    """``total`` places. A key holds at most ``part`` of them, or what :meth:`limit` says of it.

    A place that becomes free goes to the key that has waited longest since its last turn, so a source with a hundred
    waiting events gets no more of a busy provider than one with a single event.
    """

    def __init__(self, total: int, *, part: int | None = None) -> None:
        self._free = total
        self._part = max(1, total // 2 if part is None else part)
        self._limits: dict[Hashable, int] = {}
        self._held: dict[Hashable, int] = {}
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def limit(self, key: Hashable, places: int) -> None:
        """Let ``key`` hold at most ``places``."""
        self._limits[key] = max(1, places)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a place and hold it."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release(key)

    async def _acquire(self, key: Hashable) -> None:
        if self._free > 0 and key not in self._waiting and self._below(key):
            self._take(key)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release(key)  # the place was given while we were being cancelled
            else:
                self._leave(key, future)
            raise

    def _leave(self, key: Hashable, future: asyncio.Future[None]) -> None:
        line = self._waiting.get(key)
        if line is not None and future in line:
            line.remove(future)
            if not line:
                del self._waiting[key]

    def _below(self, key: Hashable) -> bool:
        return self._held.get(key, 0) < self._limits.get(key, self._part)

    def _take(self, key: Hashable) -> None:
        self._free -= 1
        self._held[key] = self._held.get(key, 0) + 1

    def _release(self, key: Hashable) -> None:
        self._free += 1
        if self._held[key] == 1:
            del self._held[key]
        else:
            self._held[key] -= 1
        while self._free > 0 and self._give():
            pass

    def _give(self) -> bool:
        """Give a place to the first key in line that may have one. False when there is none."""
        for key, line in self._waiting.items():
            while line and line[0].done():
                line.popleft()
            if not line or not self._below(key):
                continue
            line.popleft().set_result(None)
            self._take(key)
            if line:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            return True
        for key in [key for key, line in self._waiting.items() if not line]:
            del self._waiting[key]
        return False
