"""Running one record to its end: attempts, then poison; what is not the record's fault spends neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.kafka.execution import Handler, PoisonHandler, Postponed
from room_common.kafka.offsets import Progress
from room_common.kafka.records import Record
from room_common.kafka.spans import process_span

_LONGEST_PAUSE: Final = 30.0

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Work:
    """A record in hand. ``received`` is monotonic seconds; ``poison`` the last error once all attempts are spent."""

    record: Record
    progress: Progress
    received: float
    attempts: int = 0
    poison: Exception | None = None


class Attempts:
    """How often a record is tried and what happens then.

    ``on_error`` is told of every failed attempt: the error's class and whether it was the last one.
    """

    def __init__(
        self,
        handler: Handler,
        on_poison: PoisonHandler,
        *,
        attempts: int,
        pause_seconds: float,
        on_error: Callable[[str, bool], None],
        group: str = "",
    ) -> None:
        self._handler = handler
        self._on_poison = on_poison
        self._attempts = attempts
        self._pause = pause_seconds
        self._on_error = on_error
        self._group = group

    async def run(self, work: Work) -> DependencyUnavailable | Postponed | None:
        """Until the record is complete (None), or has to wait: then ``run`` it again, it goes on where it was.

        A record whose assignment ended is given up between attempts, which returns None as well.
        """
        failures = 0
        while work.progress.alive:
            try:
                await self._once(work)
            except (DependencyUnavailable, Postponed) as error:
                return error
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                self._failed(work, RuntimeError("cancelled from inside"))
            except Exception as error:
                self._failed(work, error)
            else:
                return None
            await asyncio.sleep(min(self._pause * 2**failures, _LONGEST_PAUSE))
            failures += 1
        return None

    async def _once(self, work: Work) -> None:
        with process_span(work.record, self._group):
            if work.poison is None:
                await self._handler(work.record)
            else:
                await self._on_poison(work.record, work.poison)

    def _failed(self, work: Work, error: Exception) -> None:
        work.attempts += 1
        last = work.poison is None and work.attempts >= self._attempts
        record = work.record
        log.warning(
            "record failed",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            attempt=work.attempts,
            error=type(error).__name__,
            poison=last or work.poison is not None,
        )
        self._on_error(type(error).__name__, last)
        if last:
            work.poison = error
