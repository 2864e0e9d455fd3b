"""Many small questions to a store, asked together: what comes while one round trip is under way shares the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from room_common.errors import DependencyUnavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MOST: Final = 500
_ROUNDS: Final = 2
_LINGER: Final = 0.005


class Coalescer(Generic[K, V]):
    """``ask`` waits for the round that its key is part of.

    ``load`` gets different keys and answers all of them; what it raises is raised to everybody of that round, and it
    is bounded in time by whoever wrote it. ``rounds`` may be under way at once. A question that comes alone is asked at
    once; while questions keep coming, a round waits ``linger`` seconds for company.
    """

    def __init__(
        self,
        load: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]],
        *,
        most: int = _MOST,
        rounds: int = _ROUNDS,
        linger: float = _LINGER,
    ) -> None:
        self._load = load
        self._most = most
        self._rounds = rounds
        self._linger = linger
        self._busy_until = 0.0
        self._collecting = False
        self._waiting: deque[tuple[K, asyncio.Future[V]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, key: K) -> V:
        """The answer for ``key``, read after this call began."""
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        self._start()
        return await future

    def _start(self) -> None:
        """Begin a round unless one is collecting already."""
        if self._waiting and not self._collecting and len(self._running) < self._rounds:
            self._collecting = True
            task = asyncio.create_task(self._round())
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def _collect(self) -> list[tuple[K, asyncio.Future[V]]]:
        loop = asyncio.get_running_loop()
        try:
            if loop.time() < self._busy_until and len(self._waiting) < self._most:
                await asyncio.sleep(self._linger)
            self._busy_until = loop.time() + 2 * self._linger
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        finally:
            self._collecting = False
        self._start()
        return [(key, future) for key, future in batch if not future.done()]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _round(self) -> None:
        asked = await self._collect()
        if not asked:
            return
        try:
            answers = await self._load(list(dict.fromkeys(key for key, _ in asked)))
        except BaseException as error:
            for _, future in asked:
                if not future.done():
                    future.set_exception(_again(error))
            if not isinstance(error, Exception):
                raise
            return
        for key, future in asked:
            if not future.done():
                future.set_result(answers[key])


def _again(error: BaseException) -> BaseException:
    """An error of its own for each who waits: one object raised in several tasks would gather all their frames."""
    if isinstance(error, DependencyUnavailable):
        again = DependencyUnavailable(error.dependency, error.kind)
        again.__dict__.update(error.__dict__)
        return again
    return error if isinstance(error, Exception) else asyncio.CancelledError()
