"""The queue in front of an instance's cap: who may ask the model while the backlog is nearly full.

The deciding transaction checks the cap exactly; this saves the calls it would waste. An event that could still be
refused by the ones being classified right now waits until one of them is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

CountPending = Callable[[UUID], Awaitable[int]]


class _Instance:
    """One instance's queue: ``turn`` lets one at a time count, first come first served."""

    __slots__ = ("changed", "in_flight", "turn", "users")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()
        self.in_flight = 0
        self.users = 0


class Admission:
    """Places in front of the cap, for this process. ``count`` asks the database for an instance's pending events."""

    def __init__(self, count: CountPending, cap: int) -> None:
        self._count = count
        self._cap = cap
        self._instances: dict[UUID, _Instance] = {}

    async def full(self, instance_id: UUID) -> bool:
        """Whether pending events alone reach the cap now."""
        return await self._count(instance_id) >= self._cap

    @asynccontextmanager
    async def place(self, instance_id: UUID) -> AsyncIterator[bool]:
        """Wait for a place and hold it until the event is decided. False: the backlog is full, do not ask.

        Waits only while pending events and those in flight reach the cap together; pending alone at the cap is full.
        """
        instance = self._instances.setdefault(instance_id, _Instance())
        instance.users += 1
        try:
            if not await self._enter(instance_id, instance):
                yield False
                return
            try:
                yield True
            finally:
                instance.in_flight -= 1
                instance.changed.set()
        finally:
            instance.users -= 1
            if instance.users == 0:
                del self._instances[instance_id]

    async def _enter(self, instance_id: UUID, instance: _Instance) -> bool:
        async with instance.turn:
            while True:
                instance.changed.clear()
                pending = await self._count(instance_id)
                if pending >= self._cap:
                    return False
                if pending + instance.in_flight < self._cap:
                    instance.in_flight += 1
                    return True
                await instance.changed.wait()
