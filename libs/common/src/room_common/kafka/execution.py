"""What an executor is told and what it counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass

from room_common.kafka.records import Record

Handler = Callable[[Record], Awaitable[None]]
PoisonHandler = Callable[[Record, Exception], Awaitable[None]]
DedupKey = Callable[[Record], bytes | None]
ShareKey = Callable[[Record], Hashable | None]
Divert = Callable[[Sequence[Record]], Awaitable[None]]
LookUp = Callable[[Sequence[Record]], Awaitable[set[tuple[int, int]]]]


class Postponed(Exception):
    """Raised by a handler: this record has to wait and no other one with it. ``reason`` is a bounded name.

    It is handled again after ``seconds``. Until then it takes no place among the running ones, and spends no attempt.
    """

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Handling:
    """What is done with records.

    ``handle`` completes its record by returning; ``DependencyUnavailable`` holds consumption and runs the record again
    later; ``Postponed`` lets it wait alone; after ``Limits.attempts`` other errors ``on_poison`` has to put it aside.
    ``already_done`` names, as (partition, offset), those of a batch that need no handling; it needs one topic per
    executor. ``dedup_key`` None means: equal to no other record. ``share_key`` says whose share of the buffer a record
    takes (None: nobody's); ``divert`` gets what is beyond ``Limits.share`` and makes it durable elsewhere, trying as
    often as it takes.
    """

    handle: Handler
    on_poison: PoisonHandler
    dedup_key: DedupKey | None = None
    already_done: LookUp | None = None
    share_key: ShareKey | None = None
    divert: Divert | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an executor. Times are in seconds.

    ``span`` is how far a partition may run ahead of its first unfinished record; up to that many records are looked at
    again after a crash. ``revoke_drain`` and ``stop_drain`` are how long running handlers may finish before partitions
    are given away, and before the process goes. ``probe`` is the time between two probes of a hold. ``share`` is how
    many buffered records one key may have.
    """

    concurrency: int = 16
    buffered: int = 512
    share: int = 64
    span: int = 10_000
    attempts: int = 3
    retry_pause: float = 0.2
    revoke_drain: float = 5.0
    stop_drain: float = 20.0
    commit_interval: float = 1.0
    look_up: float = 10.0
    probe: float = 5.0


@dataclass(slots=True)
class Counts:
    """What happened since the start."""

    received: int = 0
    completed: int = 0
    commits: int = 0
    commit_errors: int = 0
    handler_errors: int = 0
    poisoned: int = 0
    rebalances: int = 0
    recreations: int = 0
