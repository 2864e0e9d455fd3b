"""The memory of verdicts without Redis."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from room_common.cache.memory import KEPT_SECONDS, LONGEST_ANSWER


class LocalVerdictMemory:
    """:class:`room_common.cache.memory.VerdictMemory` in this process, bounded. ``clock`` is monotonic seconds.

    It passes the same suite as the one in Redis.
    """

    def __init__(self, *, limit: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float, str]] = OrderedDict()

    async def get(self, key: str) -> str | None:
        """See :class:`room_common.cache.memory.VerdictMemory`."""
        until, answer = self._answers.get(key, (0.0, ""))
        return answer if until > self._clock() else None

    async def put(self, key: str, answer: str) -> None:
        """See :class:`room_common.cache.memory.VerdictMemory`."""
        kept = answer[:LONGEST_ANSWER].encode("utf-8", "replace").decode()
        self._answers[key] = (self._clock() + KEPT_SECONDS, kept)
        self._answers.move_to_end(key)
        while len(self._answers) > self._limit:
            self._answers.popitem(last=False)
