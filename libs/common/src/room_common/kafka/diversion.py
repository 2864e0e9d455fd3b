"""Shares of the buffer: a key that holds its share already has its further records taken elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Work
from room_common.kafka.execution import Handling

MOST_AT_ONCE: Final = 200
GRACE_SECONDS: Final = 0.25
"""So long a record waits for its key's share before it is diverted: a burst that is quickly worked off stays."""

SLOW_SECONDS: Final = 10.0
"""So long a key that was not in time is taken to be slow, counted from what it last sent beyond its share: that does
not wait again."""

_LOOK_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)


class Diversion:
    """Counts what each key has in hand, and hands what is beyond its share to ``Handling.divert``.

    A record beyond the share waits a moment, in which its partition should bring no more (``congested``); it does not
    wait while the buffer is full or its key is known to be slow. A diverted work is complete once ``divert`` returned;
    where that fails it waits on and takes up room, so the flood stops there while whoever has a share left goes on.
    ``on_offer`` starts a work that came in time.
    """

    def __init__(
        self,
        handling: Handling,
        *,
        share: int,
        retry_seconds: float,
        on_offer: Callable[[Work], None],
        on_over: Callable[[Work, bool], None],
        on_error: Callable[[str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handling = handling
        self._share = share
        self._retry = retry_seconds
        self._on_offer = on_offer
        self._on_over = on_over
        self._on_error = on_error
        self._clock = clock
        self._held: dict[Hashable, int] = {}
        self._keys: dict[Work, Hashable] = {}
        self._excess: dict[Hashable, deque[tuple[float, Work]]] = {}
        self._slow: dict[Hashable, float] = {}
        self._leaving: list[Work] = []
        self._pressed = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def takes(self, work: Work) -> bool:
        """Whether ``work`` is beyond its key's share and waits here. If not, it is counted until ``over``."""
        if self._handling.share_key is None or self._handling.divert is None:
            return False
        key = self._handling.share_key(work.record)
        if key is None:
            return False
        if self._held.get(key, 0) < self._share and key not in self._excess:
            self._hold(key, work)
            return False
        now = self._clock()
        slow = self._slow.get(key, now) > now
        self._excess.setdefault(key, deque()).append((now if slow else now + GRACE_SECONDS, work))
        if slow:
            self._slow[key] = now + SLOW_SECONDS  # for as long as it keeps sending more than its share
            self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return True

    def over(self, work: Work) -> None:
        """``work`` is no longer in hand; the next of its key takes its place."""
        key = self._keys.pop(work, None)
        if key is None:
            return
        if self._held[key] == 1:
            del self._held[key]
        else:
            self._held[key] -= 1
        excess = self._excess.get(key)
        if excess:
            _, following = excess.popleft()
            if not excess:
                del self._excess[key]
            self._hold(key, following)
            self._on_offer(following)

    def press(self) -> None:
        """The buffer is full: what waits for its share leaves at once."""
        if self._excess:
            self._pressed = True
            self._wake.set()

    def congested(self) -> set[tuple[str, int]]:
        """The partitions, as (topic, partition), whose latest records wait for their share to become free."""
        now = self._clock()
        waiting = (excess[-1][1].record for key, excess in self._excess.items() if self._slow.get(key, now) <= now)
        return {(record.topic, record.partition) for record in waiting}

    def drop_waiting(self) -> None:
        """Forget what is not being handed over at this moment."""
        self._excess.clear()

    async def drain(self, seconds: float) -> None:
        """Let what is being handed over end, for at most ``seconds``, and begin nothing more."""
        self._excess.clear()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        if self._task is not None:
            self._task.cancel()
        self._leaving.clear()

    def _hold(self, key: Hashable, work: Work) -> None:
        self._held[key] = self._held.get(key, 0) + 1
        self._keys[work] = key

    async def _run(self) -> None:
        try:
            while self._excess or self._leaving:
                self._collect()
                if not self._leaving:
                    await self._look_again(_LOOK_SECONDS)
                elif not await self._hand_over():
                    await asyncio.sleep(self._retry)
        finally:
            self._task = None

    def _collect(self) -> None:
        """What has waited long enough, or all of it under pressure, leaves."""
        now = self._clock()
        limit = float("inf") if self._pressed else now
        self._pressed = False
        self._slow = {key: until for key, until in self._slow.items() if until > now}
        for key in list(self._excess):
            excess = self._excess[key]
            while excess and excess[0][0] <= limit:
                if excess[0][0] <= now and key not in self._slow:
                    self._slow[key] = now + SLOW_SECONDS
                self._leaving.append(excess.popleft()[1])
            if not excess:
                del self._excess[key]

    async def _look_again(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _hand_over(self) -> bool:
        assert self._handling.divert is not None
        batch = self._leaving[:MOST_AT_ONCE]
        try:
            await self._handling.divert([work.record for work in batch])
        except DependencyUnavailable as error:
            log.warning("records can't be diverted", reason=str(error), records=len(batch))
            return False
        except Exception as error:
            log.error("records can't be diverted", error=type(error).__name__, records=len(batch))
            self._on_error(type(error).__name__, False)
            return False
        del self._leaving[: len(batch)]
        for work in batch:
            self._on_over(work, True)
        return True
