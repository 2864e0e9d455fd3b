"""Shares of the buffer: a key that holds its share already has its further records taken elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Work
from room_common.kafka.execution import Handling

MOST_AT_ONCE: Final = 200

log = structlog.get_logger(__name__)


class Diversion:
    """Counts what each key has in hand, and hands what is beyond its share to ``Handling.divert``.

    A diverted work is complete once that returned. While it can't be diverted it waits and takes up room in the
    buffer, so the flood stops there; whoever has a share left goes on.
    """

    def __init__(
        self,
        handling: Handling,
        *,
        share: int,
        retry_seconds: float,
        on_over: Callable[[Work, bool], None],
        on_error: Callable[[str, bool], None],
    ) -> None:
        self._handling = handling
        self._share = share
        self._retry = retry_seconds
        self._on_over = on_over
        self._on_error = on_error
        self._held: dict[Hashable, int] = {}
        self._keys: dict[Work, Hashable] = {}
        self._waiting: list[Work] = []
        self._task: asyncio.Task[None] | None = None

    def takes(self, work: Work) -> bool:
        """Whether ``work`` is beyond its key's share and leaves by this door. If not, it is counted until ``over``."""
        if self._handling.share_key is None or self._handling.divert is None:
            return False
        key = self._handling.share_key(work.record)
        if key is None:
            return False
        held = self._held.get(key, 0)
        if held < self._share:
            self._held[key] = held + 1
            self._keys[work] = key
            return False
        self._waiting.append(work)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return True

    def over(self, work: Work) -> None:
        """``work`` is no longer in hand."""
        key = self._keys.pop(work, None)
        if key is None:
            return
        if self._held[key] == 1:
            del self._held[key]
        else:
            self._held[key] -= 1

    def drop_waiting(self) -> None:
        """Forget what is not being handed over at this moment."""
        self._waiting.clear()

    async def drain(self, seconds: float) -> None:
        """Let what is being handed over end, for at most ``seconds``, and begin nothing more."""
        self._waiting.clear()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MOST_AT_ONCE]
                if await self._hand_over(batch):
                    gone = set(batch)
                    self._waiting = [work for work in self._waiting if work not in gone]
                    for work in batch:
                        self._on_over(work, True)
                elif self._waiting:
                    await asyncio.sleep(self._retry)
        finally:
            self._task = None

    async def _hand_over(self, batch: list[Work]) -> bool:
        assert self._handling.divert is not None
        try:
            await self._handling.divert([work.record for work in batch])
        except DependencyUnavailable as error:
            log.warning("records can't be diverted", reason=str(error), records=len(batch))
        except Exception as error:
            log.error("records can't be diverted", error=type(error).__name__, records=len(batch))
            self._on_error(type(error).__name__, False)
        else:
            return True
        return False
