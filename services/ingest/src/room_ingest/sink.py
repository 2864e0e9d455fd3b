"""The port between HTTP and Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Done = Callable[[bool], None]


class RecordSink(Protocol):
    """Where the records of one topic go."""

    def submit(self, spread: int, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
        """Take a record; ``spread`` modulo the partition count is its partition.

        ``done(True)`` once it is written, ``done(False)`` when that is not known in time: it may still be written.
        ``done`` is called exactly once, on the event loop, possibly before this returns.
        """
