"""Stops consumption when events die in numbers that none of them can be blamed for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_matcher.domain.dead_limit import DeadLimit
from room_matcher.metrics import MatcherMetrics

DEPENDENCY: Final = "dead_letters"
KIND: Final = "limit"
REASON: Final = f"{DEPENDENCY}_{KIND}"
"""Under this reason consumption is held."""

Hold = Callable[[str, float], None]
Release = Callable[[str], None]

log = structlog.get_logger(__name__)


class DeadGate:
    """Asked before an event dies, told how every event ended. ``on_hold`` and ``on_release`` reach the executors."""

    def __init__(
        self,
        metrics: MatcherMetrics,
        on_hold: Hold,
        on_release: Release,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = DeadLimit()
        self._metrics = metrics
        self._on_hold = on_hold
        self._on_release = on_release
        self._clock = clock

    @contextmanager
    def dying(self) -> Iterator[None]:
        """One more event dies inside. Raises ``DependencyUnavailable``: not now, the limit is reached."""
        wait = self._limit.begin(self._clock())
        if wait > 0:
            raise DependencyUnavailable(DEPENDENCY, KIND, retry_after=wait)
        try:
            yield
        finally:
            self._limit.end()

    def ended(self, outcome: str) -> None:
        """An event came to its end."""
        now = self._clock()
        if outcome != "dead":
            if self._limit.lived(now):
                self._metrics.dead_limit(reached=False)
                self._on_release(REASON)
            return
        if self._limit.died(now):
            self._metrics.dead_limit(reached=True)
            log.error("too many events die: consumption is held")
        if self._limit.held:
            self._on_hold(REASON, self._limit.pause(now))
