"""How often a caller may do something that costs money."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_KEPT: Final = 1000


class Allowance:
    """``burst`` calls at once, and one more every ``seconds``, for each caller."""

    def __init__(self, burst: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str) -> float:
        """0 when the caller may go on, and then it counts; else the seconds after which to ask again."""
        now = self._clock()
        # when the caller will have all of its allowance again
        whole_at = max(now, self._free_at.get(caller, now))
        wait = whole_at + self._seconds - (now + self._burst * self._seconds)
        if wait > 0:
            return wait
        self._free_at[caller] = whole_at + self._seconds
        self._free_at.move_to_end(caller)
        while len(self._free_at) > _KEPT:
            self._free_at.popitem(last=False)
        return 0.0
