"""When too many events die to believe that each is at fault itself. Pure: ``now`` is monotonic seconds.

A bad deployment or a provider that refuses everything would otherwise empty the topic into the dead-letter topic.
"""

from __future__ import annotations

from collections import deque
from typing import Final

IN_A_ROW: Final = 20
"""So many dead with nothing else decided between them are too many."""

SHARE: Final = 0.05
WINDOW_SECONDS: Final = 600.0
"""More than this share of what was decided in the window is too many, once ``IN_A_ROW`` of them are dead."""

FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0

BESIDE_SECONDS: Final = 1.0
"""So long one waits to see what becomes of those that are dying at the same time."""

_BUCKET_SECONDS: Final = 10.0


class DeadLimit:
    """Counts how events end, and says when one more may die.

    Once the limit is reached, one event may die after each pause, which doubles from 5 s to 60 s; the first event that
    ends otherwise ends the hold, and counting begins anew. Reached again within the window, the pause goes on from
    where it was.
    """

    def __init__(self) -> None:
        self._row = 0
        self._dying = 0
        self._buckets: deque[tuple[float, int, int]] = deque()
        self._held = False
        self._pause = FIRST_PAUSE_SECONDS
        self._next = 0.0
        self._ended_at = float("-inf")

    @property
    def held(self) -> bool:
        """Whether the limit is reached and nothing has ended well since."""
        return self._held

    def begin(self, now: float) -> float:
        """Seconds until one more event may die; 0 when it may now, and then :meth:`end` has to follow.

        Those that are dying at this moment count as dead: otherwise a burst would pass the limit side by side.
        """
        wait = self._wait(now)
        if wait == 0:
            self._dying += 1
        return wait

    def end(self) -> None:
        """What was begun is over, however it ended."""
        self._dying -= 1

    def _wait(self, now: float) -> float:
        if not self._held:
            return BESIDE_SECONDS if self._row + self._dying >= IN_A_ROW else 0.0
        if now < self._next:
            return self._next - now
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._next = now + self._pause
        return 0.0

    def pause(self, now: float) -> float:
        """Seconds until one more event may die, without taking the turn."""
        return max(0.0, self._next - now) if self._held else 0.0

    def died(self, now: float) -> bool:
        """An event died. True when the limit is reached by it."""
        self._row += 1
        self._count(now, dead=1)
        if self._held or not self._too_many(now):
            return False
        if now - self._ended_at > WINDOW_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        self._held = True
        self._next = now + self._pause
        return True

    def lived(self, now: float) -> bool:
        """An event ended otherwise. True when that ends the hold."""
        self._row = 0
        self._count(now, dead=0)
        if not self._held:
            return False
        self._held = False
        self._ended_at = now
        self._buckets.clear()
        return True

    def _count(self, now: float, *, dead: int) -> None:
        began = now - now % _BUCKET_SECONDS
        if self._buckets and self._buckets[-1][0] == began:
            _, all_before, dead_before = self._buckets.pop()
        else:
            all_before = dead_before = 0
        self._buckets.append((began, all_before + 1, dead_before + dead))
        while self._buckets[0][0] < now - WINDOW_SECONDS:
            self._buckets.popleft()

    def _too_many(self, now: float) -> bool:
        if self._row >= IN_A_ROW:
            return True
        decided = sum(bucket[1] for bucket in self._buckets)
        dead = sum(bucket[2] for bucket in self._buckets)
        return dead >= IN_A_ROW and dead > SHARE * decided
