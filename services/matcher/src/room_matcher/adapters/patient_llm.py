"""Telling a call that fails by itself from a provider that is away.

A provider that is away holds all consumption, and that spends no attempt. A single prompt that it never answers must
not hold anything: a payload over which the model thinks for ever, one that crashes the server, one that is larger than
a limit, an instance's own model that is overloaded. So when a call failed and nobody was answered since, a question of
one word to the default model finds out. If that is answered, the call is at fault: it is said again in place, with
growing pauses, and given up in the end.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.llm.port import CALL_LOCAL, CallKind, ChatRequest, Completion, EventRejected, Llm

TRIES: Final = 5
"""A call is never given up before so many tries."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
LONGEST_WISH: Final = 60.0
"""The provider's own wish for the next try is obeyed up to this."""
CHECK_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 300.0
RATE_LIMIT_FACTOR: Final = 6.0
"""A limit on tokens refuses long prompts while it answers short ones, also those it has room for a little later."""
AVOIDED_SECONDS: Final = 300.0
"""So long an own model that answered nobody is not asked again: each call would spend its tries first."""
REMEMBERED_MODELS: Final = 256

_NEVER: Final = float("-inf")
_CHECK: Final = ChatRequest(
    tier="fast",
    messages=({"role": "user", "content": "Answer with one word: yes."},),
    max_output_tokens=64,
    timeout=CHECK_SECONDS,
)

Place = Callable[[bool], AbstractAsyncContextManager[None]]
"""Entered for each try and left before each pause; told whether there was a try before."""
Note = Callable[[CallKind, int], None]
"""Told of a call that is said again because of this kind of failure (1), and that this is over (-1)."""

log = structlog.get_logger(__name__)


class _GivenUp(Exception):
    def __init__(self, kind: CallKind) -> None:
        super().__init__(kind)
        self.kind = kind


class PatientLlm:
    """A model provider that is reported as away only while it answers nobody.

    A call is given up after ``TRIES`` tries and ``patience`` seconds; a rate limit gets ``RATE_LIMIT_FACTOR`` times
    that. An instance's own model is given up after ``TRIES`` tries, and the tier's default asked instead.
    """

    def __init__(
        self,
        llm: Llm,
        note: Note,
        *,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._llm = llm
        self._note = note
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._answered_at = _NEVER
        self._away_at = _NEVER
        self._own_answered_at: OrderedDict[str, float] = OrderedDict()
        self._avoided_until: OrderedDict[str, float] = OrderedDict()
        self._checking = asyncio.Lock()

    async def complete(self, request: ChatRequest, place: Place) -> Completion:
        """Answer ``request``, which holds a ``place`` while it is asked.

        Raises ``DependencyUnavailable`` when the provider is at fault and ``EventRejected`` when the prompt is; a call
        that was given up is rejected under the kind of its last failure.
        """
        try:
            if request.model is None:
                return await self._patiently(request, place, self._patience)
            return await self._own_model(request, request.model, place)
        except _GivenUp as error:
            kind = error.kind
        log.error("a model call is given up: it fails while the provider answers others", tier=request.tier, kind=kind)
        raise EventRejected(kind)

    async def _own_model(self, request: ChatRequest, model: str, place: Place) -> Completion:
        began = self._clock()
        if self._avoided_until.get(model, _NEVER) <= began:
            try:
                return await self._patiently(request, place, 0.0)
            except _GivenUp as error:
                log.warning("an instance's own model is given up for the default", tier=request.tier, kind=error.kind)
            if self._own_answered_at.get(model, _NEVER) <= began:
                _remember(self._avoided_until, model, self._clock() + AVOIDED_SECONDS)
        answer = await self._patiently(replace(request, model=None), place, self._patience)
        return replace(answer, fallback=True)

    async def _patiently(self, request: ChatRequest, place: Place, patience: float) -> Completion:
        pause, tries, began = FIRST_PAUSE, 0, self._clock()
        noted: CallKind | None = None
        try:
            while True:
                asked = self._clock()
                try:
                    async with place(tries > 0):
                        return await self._ask(request)
                except DependencyUnavailable as error:
                    kind, wish = _own_fault(error), error.retry_after
                    if kind is None:
                        raise
                    await self._check(asked, error)
                if noted is not kind:
                    self._tell(noted, kind)
                    noted = kind
                tries += 1
                enough = patience * (RATE_LIMIT_FACTOR if kind == "rate_limit" else 1.0)
                if tries >= TRIES and self._clock() - began >= enough:
                    raise _GivenUp(kind)
                log.warning("a model call fails while the provider answers others", tier=request.tier, kind=kind)
                await self._sleep(max(pause, min(wish or 0.0, LONGEST_WISH)))
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            self._tell(noted, None)

    def _tell(self, before: CallKind | None, now: CallKind | None) -> None:
        if before is not None:
            self._note(before, -1)
        if now is not None:
            self._note(now, 1)

    async def _ask(self, request: ChatRequest) -> Completion:
        completion = await self._llm.complete(request)
        if request.model is None or completion.fallback:
            self._answered_at = self._clock()
        else:
            _remember(self._own_answered_at, request.model, self._clock())
        return completion

    async def _check(self, asked: float, error: DependencyUnavailable) -> None:
        """Return if the default model has answered anybody since ``asked``, or does now; else raise."""
        async with self._checking:
            if self._answered_at > asked:
                return
            if self._away_at > asked:
                raise DependencyUnavailable(error.dependency, error.kind, retry_after=error.retry_after, at=error.at)
            try:
                await self._ask(_CHECK)
            except DependencyUnavailable:
                self._away_at = self._clock()
                raise
            except EventRejected:  # an answer all the same
                self._answered_at = self._clock()


_KINDS: Final[Mapping[str, CallKind]] = {kind: kind for kind in CALL_LOCAL}


def _own_fault(error: DependencyUnavailable) -> CallKind | None:
    """The kind, if a provider that is well may fail so at a single call."""
    return _KINDS.get(error.kind) if error.dependency == "llm" else None


def _remember(memory: OrderedDict[str, float], model: str, value: float) -> None:
    memory[model] = value
    memory.move_to_end(model)
    while len(memory) > REMEMBERED_MODELS:
        memory.popitem(last=False)
