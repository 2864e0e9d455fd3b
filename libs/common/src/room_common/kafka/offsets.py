"""Which offsets of the assigned partitions are finished, and up to where one may commit. Pure: no clock, no I/O.

Records of a partition finish in any order; what may be committed is the offset before which everything is finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Progress:
    """One partition during one assignment.

    ``watermark`` is the lowest unfinished offset, hence the one to commit; None until the first record came.
    ``alive`` ends with the assignment: whoever holds a record of it checks that before and after the work.
    """

    __slots__ = ("_committed", "_done", "_next", "_skipped", "alive", "epoch", "unfinished", "watermark")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.alive = True
        self.watermark: int | None = None
        self.unfinished = 0
        self._committed: int | None = None
        self._next = 0
        self._done: set[int] = set()
        self._skipped: dict[int, int] = {}

    @property
    def span(self) -> int:
        """Offsets from the lowest unfinished to the newest received."""
        return 0 if self.watermark is None else self._next - self.watermark

    def follows(self, offset: int) -> bool:
        """Whether ``offset`` is newer than all received. If not, the log was cut back or made anew."""
        return self.watermark is None or offset >= self._next

    def receive(self, offset: int) -> int:
        """Take a record in. Returns how many offsets before it never came; these count as finished.

        Offsets stay away when they were compacted, belong to transactions, or were deleted before we read them.
        """
        if not self.follows(offset):
            raise ValueError(f"offset {offset} is not newer than {self._next - 1}")
        self.unfinished += 1
        if self.watermark is None:
            self.watermark = self._committed = offset
            self._next = offset + 1
            return 0
        missing = offset - self._next
        if missing and self.watermark == self._next:
            self.watermark = offset
        elif missing:
            self._skipped[self._next] = offset
        self._next = offset + 1
        return missing

    def finish(self, offset: int) -> bool:
        """Mark a received record as finished. True when the watermark moved."""
        if self.watermark is None or not self.watermark <= offset < self._next or offset in self._done:
            raise ValueError(f"offset {offset} is not being worked on")
        self._done.add(offset)
        self.unfinished -= 1
        before = self.watermark
        while True:
            if self.watermark in self._done:
                self._done.remove(self.watermark)
                self.watermark += 1
            elif self.watermark in self._skipped:
                self.watermark = self._skipped.pop(self.watermark)
            else:
                break
        return self.watermark != before

    def to_commit(self) -> int | None:
        """The offset to commit, None when there is nothing new."""
        return None if self.watermark == self._committed else self.watermark

    def committed(self, offset: int) -> None:
        """Remember that the broker has this commit."""
        self._committed = offset


@dataclass(frozen=True, slots=True)
class Received:
    """A record's place. ``missing`` offsets before it never came; ``rewound``: the log began anew with it."""

    progress: Progress
    missing: int = 0
    rewound: bool = False


class Assignment(Generic[Key]):
    """All partitions of this member, from one rebalance to the next."""

    def __init__(self) -> None:
        self.epoch = 0
        self._partitions: dict[Key, Progress] = {}

    @property
    def partitions(self) -> list[Key]:
        return list(self._partitions)

    def begin(self, partitions: Iterable[Key]) -> None:
        """Start an assignment, and end the one before."""
        self.end()
        self._partitions = {partition: Progress(self.epoch) for partition in partitions}

    def end(self) -> None:
        """What is unfinished belongs to somebody else from here on."""
        self.epoch += 1
        for progress in self._partitions.values():
            progress.alive = False
        self._partitions = {}

    def receive(self, partition: Key, offset: int) -> Received | None:
        """Take a record in; None when the partition is not ours."""
        progress = self._partitions.get(partition)
        if progress is None:
            return None
        if progress.follows(offset):
            return Received(progress, progress.receive(offset))
        progress.alive = False
        self.epoch += 1
        progress = self._partitions[partition] = Progress(self.epoch)
        progress.receive(offset)
        return Received(progress, rewound=True)

    def watermark(self, partition: Key) -> int | None:
        progress = self._partitions.get(partition)
        return None if progress is None else progress.watermark

    def to_commit(self) -> dict[Key, int]:
        """The watermarks that moved since they were last committed."""
        return {
            partition: offset
            for partition, progress in self._partitions.items()
            if (offset := progress.to_commit()) is not None
        }

    def committed(self, epoch: int, offsets: dict[Key, int]) -> None:
        """Remember a commit made during ``epoch``."""
        if epoch != self.epoch:
            return
        for partition, offset in offsets.items():
            self._partitions[partition].committed(offset)

    def below(self, span: int) -> list[Key]:
        """The partitions whose span is smaller than ``span``: those that may bring more."""
        return [partition for partition, progress in self._partitions.items() if progress.span < span]

    @property
    def unfinished(self) -> int:
        return sum(progress.unfinished for progress in self._partitions.values())

    @property
    def span(self) -> int:
        return max((progress.span for progress in self._partitions.values()), default=0)
