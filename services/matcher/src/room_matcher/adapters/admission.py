"""The queue in front of an instance's cap: who may ask the model while the backlog is nearly full.

The deciding transaction checks the cap exactly; this saves the calls it would waste. An event that could still be
refused by the ones being classified right now waits until one of them is decided.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

CountPending = Callable[[UUID], Awaitable[int]]

COUNT_SECONDS: Final = 1.0
"""So long a count is good for letting an event pass while the backlog is far from its cap."""

_KEPT: Final = 10_000


class _Instance:
    """One instance's queue: ``turn`` lets one at a time count, first come first served.

    ``counted`` events were pending at ``counted_at``; ``decided`` left their places since, and each may have matched.
    """

    __slots__ = ("changed", "counted", "counted_at", "decided", "in_flight", "turn", "users")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()
        self.in_flight = 0
        self.users = 0
        self.counted = 0
        self.counted_at = float("-inf")
        self.decided = 0


class Admission:
    """Places in front of the cap, for this process. ``count`` asks the database for an instance's pending events."""

    def __init__(self, count: CountPending, cap: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._cap = cap
        self._clock = clock
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()

    async def full(self, instance_id: UUID) -> bool:
        """Whether pending events alone reach the cap now."""
        return await self._count(instance_id) >= self._cap

    @asynccontextmanager
    async def place(self, instance_id: UUID) -> AsyncIterator[bool]:
        """Wait for a place and hold it until the event is decided. False: the backlog is full, do not ask.

        Waits only while pending events and those in flight reach the cap together; pending alone at the cap is full,
        by a count made for this event.
        """
        instance = self._instance(instance_id)
        instance.users += 1
        try:
            if not await self._enter(instance_id, instance):
                yield False
                return
            try:
                yield True
            finally:
                instance.in_flight -= 1
                instance.decided += 1
                instance.changed.set()
        finally:
            instance.users -= 1
            self._forget()

    def _instance(self, instance_id: UUID) -> _Instance:
        instance = self._instances.setdefault(instance_id, _Instance())
        self._instances.move_to_end(instance_id)
        return instance

    def _forget(self) -> None:
        while len(self._instances) > _KEPT and next(iter(self._instances.values())).users == 0:
            self._instances.popitem(last=False)

    async def _enter(self, instance_id: UUID, instance: _Instance) -> bool:
        async with instance.turn:
            if self._surely_below(instance):
                instance.in_flight += 1
                return True
            while True:
                instance.changed.clear()
                asked, decided = self._clock(), instance.decided
                pending = await self._count(instance_id)
                instance.counted, instance.counted_at = pending, asked
                instance.decided -= decided
                if pending >= self._cap:
                    return False
                if pending + instance.in_flight < self._cap:
                    instance.in_flight += 1
                    return True
                await instance.changed.wait()

    def _surely_below(self, instance: _Instance) -> bool:
        """Whether the last count leaves room even if all that was decided since has matched."""
        if self._clock() - instance.counted_at > COUNT_SECONDS:
            return False
        return instance.counted + instance.decided + instance.in_flight < self._cap
