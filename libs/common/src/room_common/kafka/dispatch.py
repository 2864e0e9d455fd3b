"""Starts records, as many at once as allowed, one per key, and none while consumption is held."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from room_common.advice import explain
from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Attempts, Work
from room_common.kafka.execution import Postponed
from room_common.kafka.holds import Holds
from room_common.kafka.lanes import Lanes

Task = asyncio.Task[DependencyUnavailable | Postponed | None]


class Dispatcher:
    """The lanes, the running handlers and the holds.

    ``on_over`` is told once of every work that leaves: True when its record is complete, False when it was given up.
    ``on_change`` is told of a hold that began (True) or ended. ``on_crash`` gets what no handler may raise.
    """

    def __init__(
        self,
        attempts: Attempts,
        *,
        concurrency: int,
        probe_seconds: float,
        on_over: Callable[[Work, bool], None],
        on_change: Callable[[str, bool], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._attempts = attempts
        self._concurrency = concurrency
        self._on_over = on_over
        self._on_change = on_change
        self._on_crash = on_crash
        self._lanes: Lanes[Work] = Lanes()
        self._running: dict[Task, tuple[Hashable, Work, bool]] = {}
        self._postponed: dict[Hashable, tuple[str, asyncio.TimerHandle]] = {}
        self._holds = Holds(probe_seconds)
        self._why: dict[str, str] = {}
        self._changed = asyncio.Event()
        self.open = False
        """False while partitions change hands and after the end: nothing is started then."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing is started; empty when nothing is held."""
        return self._holds.reasons

    @property
    def postponed(self) -> Counter[str]:
        """How many records wait alone, by reason."""
        return Counter(reason for reason, _ in self._postponed.values())

    @property
    def lacks_probe(self) -> bool:
        """Whether a probe is due and there is no record to make it with.

        Records that met what is held for do not count: they may be what is at fault, and then none of them ends it.
        """
        idle = not self._running and not self._lanes.ready
        due = idle and self._holds.probe_due(time.monotonic())
        return self.open and not self._lanes.fresh and (due or (self._lanes.ready and self._holds.may_probe))

    def offer(self, key: Hashable, work: Work) -> None:
        """Queue a work; ``pump`` starts it."""
        self._lanes.offer(key, work)

    def close(self) -> None:
        """Start nothing more and forget what has not begun."""
        self.open = False
        self._lanes.drop_waiting()
        for key, (_, timer) in self._postponed.items():
            timer.cancel()
            self._lanes.finish(key)
        self._postponed.clear()

    def in_flight(self) -> Iterable[Work]:
        return [work for _, work, _ in self._running.values()]

    async def drain(self, seconds: float) -> None:
        """Wait for what runs."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
            await asyncio.sleep(0)  # lets the callbacks of finished tasks run

    async def cancel(self, seconds: float) -> None:
        """Cancel what runs; nothing of it counts as complete."""
        for task in self._running:
            task.cancel()
        await self.drain(seconds)

    async def wait(self, seconds: float) -> None:
        """Until something finishes or a hold ends, ``seconds`` at most."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def hold(self, reason: str, *, probe: bool, wish: float | None) -> None:
        new = reason not in self._holds.reasons
        self._holds.add(reason, time.monotonic(), probe=probe, wish=wish)
        if new:
            self._on_change(reason, True)

    def release(self, reason: str | None = None) -> None:
        self._ends(self._holds.release(reason))

    def _ends(self, reasons: Iterable[str]) -> None:
        for ended in reasons:
            self._on_change(ended, False)
        if not self._holds:
            self._changed.set()
            self.pump()

    def why(self, reason: str) -> str | None:
        """What is known of the dependency behind a reason, for an operator."""
        return self._why.get(reason)

    def hold_for(self, error: DependencyUnavailable) -> str:
        """Hold because a dependency is away. Returns the reason's name."""
        reason = f"{error.dependency}_{error.kind}"
        self._why[reason] = explain(error)
        self.hold(reason, probe=True, wish=error.retry_after)
        return reason

    def pump(self) -> None:
        """Start what may start: while held, one record as a probe when it is due."""
        while self.open and len(self._running) < self._concurrency and self._lanes.ready:
            probe = bool(self._holds)
            if probe and (self._running or not self._holds.probe_due(time.monotonic())):
                return
            taken = self._lanes.take()
            assert taken is not None
            key, work = taken
            if not work.progress.alive:
                self._lanes.finish(key)
                self._on_over(work, False)
                continue
            if probe:
                self._holds.begin_probe()
            task = asyncio.create_task(self._attempts.run(work))
            self._running[task] = (key, work, probe)
            task.add_done_callback(self._ended)

    def _ended(self, task: Task) -> None:
        key, work, probe = self._running.pop(task)
        away = self._outcome(task)
        if isinstance(away, Postponed):
            self._postpone(key, work, away)
            if probe:
                self._holds.end_probe(success=False)
        elif away is None:
            self._lanes.finish(key)
            complete = not task.cancelled() and task.exception() is None and work.progress.alive
            self._on_over(work, complete)
            if probe:
                self._ends(self._holds.end_probe(success=complete))
        else:
            if probe:
                self._holds.end_probe(success=False)
            if self.open and work.progress.alive:
                self._lanes.give_back(key)
            else:
                self._lanes.finish(key)
                self._on_over(work, False)
            self.hold_for(away)
        self._changed.set()
        self.pump()

    def _postpone(self, key: Hashable, work: Work, wish: Postponed) -> None:
        """Keep the record and its lane until its time; it needs no running handler for that."""
        if not self.open or not work.progress.alive:
            self._lanes.finish(key)
            self._on_over(work, False)
            return
        timer = asyncio.get_running_loop().call_later(wish.seconds, self._again, key)
        self._postponed[key] = (wish.reason, timer)

    def _again(self, key: Hashable) -> None:
        del self._postponed[key]
        self._lanes.give_back(key)
        self._changed.set()
        self.pump()

    def _outcome(self, task: Task) -> DependencyUnavailable | Postponed | None:
        if task.cancelled():
            return None
        error = task.exception()
        if error is not None:
            self._on_crash(error)
            return None
        return task.result()
