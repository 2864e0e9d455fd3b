"""What a produce round is made of: records that wait, batches of bytes, and where each partition stands."""

from __future__ import annotations

import asyncio
import enum
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from room_ingest.sink import Done

MAX_BATCH: Final = 900_000
"""Bytes of one batch, below ``max.message.bytes`` of our topics."""

NO_IDENTITY: Final = (-1, -1)
"""Producer id and epoch of a producer that is not idempotent."""

Item = tuple[bytes, bytes, list[tuple[str, bytes]], Done, float]
"""Key, value, headers, what to call, and when it came (seconds of the loop's clock)."""


class Place(enum.Enum):
    """Where a partition stands."""

    REST = enum.auto()
    READY = enum.auto()
    FLIGHT = enum.auto()
    TROUBLE = enum.auto()


class Batch:
    """Records as bytes. ``told``: how many of them, from the first, were too late already."""

    __slots__ = ("items", "raw", "told")

    def __init__(self, raw: bytes, items: list[Item]) -> None:
        self.raw = raw
        self.items = items
        self.told = 0


class Partition:
    """One partition: what waits for the next round, and the batch that is not acknowledged yet."""

    __slots__ = ("batch", "index", "limit", "node", "pending", "place", "sequence", "topic")

    def __init__(self, topic: bytes, index: int) -> None:
        self.topic = topic
        self.index = index
        self.pending: list[Item] = []
        self.batch: Batch | None = None
        self.sequence = 0
        self.limit = MAX_BATCH
        self.place = Place.REST
        self.node: Node | None = None


class Node:
    """One broker. Its task lives while there is something to send."""

    __slots__ = ("id", "ready", "task")

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.ready: list[Partition] = []
        self.task: asyncio.Task[None] | None = None


def build(partition: Partition, identity: tuple[int, int], now_ms: int) -> None:
    """Move what waits, as far as it fits, into the partition's batch."""
    pending = partition.pending
    idempotent = identity != NO_IDENTITY
    sequence = partition.sequence if idempotent else -1
    builder = DefaultRecordBatchBuilder(2, 0, 0, *identity, sequence, partition.limit)
    count = 0
    for key, value, headers, _, _ in pending:
        if builder.append(count, now_ms, key, value, headers) is None:
            break  # never the first one: a builder takes that whatever its size
        count += 1
    partition.pending = pending[count:]
    partition.batch = Batch(bytes(builder.build()), pending[:count])
    if idempotent:
        partition.sequence = (sequence + count) & 0x7FFF_FFFF


def older(items: list[Item], start: int, late: float) -> int:
    """How many items from ``start`` on were born before ``late``."""
    count = 0
    for item in items[start:] if start else items:
        if item[4] > late:
            break
        count += 1
    return count
