"""Telling a prompt that hangs from a provider that is away.

A provider that is away holds all consumption. One payload over which the model thinks for ever must not: it would be
met again first thing by every probe, and nothing else would ever be asked. So a call that timed out is said again in
place, as long as the provider answers others; where there are no others, a question of one word finds out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, Llm

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
CHECK_SECONDS: Final = 5.0

_CHECK: Final = ChatRequest(
    tier="fast",
    messages=({"role": "user", "content": "Answer with one word: yes."},),
    max_output_tokens=64,
    timeout=CHECK_SECONDS,
)

log = structlog.get_logger(__name__)


class PatientLlm:
    """:class:`room_common.llm.port.Llm` that reports a timeout only while the provider answers nobody."""

    def __init__(
        self,
        llm: Llm,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._llm = llm
        self._clock = clock
        self._sleep = sleep
        self._answered_at = float("-inf")
        self._away_at = float("-inf")
        self._checking = asyncio.Lock()

    async def complete(self, request: ChatRequest) -> Completion:
        """See :meth:`room_common.llm.port.Llm.complete`. Not bounded in time for a prompt that always times out."""
        pause = FIRST_PAUSE
        while True:
            asked = self._clock()
            try:
                return await self._ask(request)
            except DependencyUnavailable as error:
                if error.kind != "timeout":
                    raise
                await self._check(asked, error)
            log.warning("a model call timed out while the provider answers others", tier=request.tier)
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _ask(self, request: ChatRequest) -> Completion:
        completion = await self._llm.complete(request)
        self._answered_at = self._clock()
        return completion

    async def _check(self, asked: float, error: DependencyUnavailable) -> None:
        """Return if the provider has answered anybody since ``asked``, or does now; else raise."""
        async with self._checking:
            if self._answered_at > asked:
                return
            if self._away_at > asked:
                raise DependencyUnavailable(error.dependency, error.kind)
            try:
                await self._ask(_CHECK)
            except DependencyUnavailable:
                self._away_at = self._clock()
                raise
