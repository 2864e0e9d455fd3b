"""The port between HTTP and whatever makes a record durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Stored = Callable[[bool], None]
"""Told once whether a record was stored, on the loop."""


class Parcel:
    """A record on its way, and who is told what became of it.

    ``headers`` are Kafka's bytes of them (:mod:`room_ingest.domain.record_format`); ``spread`` modulo the number of
    partitions is its partition; ``born`` is when a sink took it, in seconds of the loop's clock.
    """

    __slots__ = ("born", "headers", "key", "spread", "value")

    born: float
    headers: bytes
    key: bytes
    spread: int
    value: bytes

    def done(self, written: bool) -> None:
        """True: it is written. False: that is not known in time, and it may still be. Called once, on the loop."""
        raise NotImplementedError


class RecordSink(Protocol):
    """Where the records of one topic go."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    def submit(self, parcel: Parcel) -> None:
        """Take a record. Its ``done`` is called exactly once, possibly before this returns."""
