"""What a produce round is made of: records that wait, batches of bytes, and where each partition stands."""

from __future__ import annotations

import asyncio
from typing import Final

from google_crc32c import value as crc32c

from room_ingest.domain.record_format import HEAD_BYTES, RECORD_OVERHEAD, batch, checked_head, record
from room_ingest.sink import Parcel

MAX_BATCH: Final = 900_000
"""Bytes of one batch, below ``max.message.bytes`` of our topics."""

NO_IDENTITY: Final = (-1, -1)
"""Producer id and epoch of a producer that is not idempotent."""


REST, READY, FLIGHT, TROUBLE = range(4)
"""Where a partition stands. Plain numbers: an enum's members cost on every record."""


class Batch:
    """Records as bytes. ``told``: how many of them, from the first, were too late already."""

    __slots__ = ("items", "raw", "told")

    def __init__(self, raw: bytes, items: list[Parcel]) -> None:
        self.raw = raw
        self.items = items
        self.told = 0


class Partition:
    """One partition: what waits for the next round, and the batch that is not acknowledged yet."""

    __slots__ = ("batch", "index", "limit", "node", "pending", "place", "sequence", "stalled", "topic")

    def __init__(self, topic: bytes, index: int) -> None:
        self.topic = topic
        self.index = index
        self.pending: list[Parcel] = []
        self.batch: Batch | None = None
        self.sequence = 0
        self.limit = MAX_BATCH
        self.place = REST
        self.stalled = False
        """A record became late here, and none was written since."""
        self.node: Node | None = None


class Node:
    """One broker. Its task lives while there is something to send."""

    __slots__ = ("id", "ready", "task", "trying_until")

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.ready: list[Partition] = []
        self.task: asyncio.Task[None] | None = None
        self.trying_until = 0.0
        """Until when a record tries whether one of its partitions takes records again."""


def build(partition: Partition, identity: tuple[int, int], now_ms: int) -> None:
    """Move what waits, as far as it fits, into the partition's batch. The first record fits whatever its size."""
    pending = partition.pending
    room = partition.limit - HEAD_BYTES
    pieces = [b""]
    count = 0
    for parcel in pending:
        key, value, headers = parcel.key, parcel.value, parcel.headers
        room -= len(key) + len(value) + len(headers) + RECORD_OVERHEAD
        if room < 0 and count:
            break
        pieces += record(count, key, value, headers)
        count += 1
    taken = pending if count == len(pending) else pending[:count]
    idempotent = identity != NO_IDENTITY
    sequence = partition.sequence if idempotent else -1
    pieces[0] = checked_head(count, now_ms, identity, sequence)
    checked = b"".join(pieces)
    partition.pending = pending[count:]
    partition.batch = Batch(batch(checked, crc32c(checked)), taken)
    if idempotent:
        partition.sequence = (sequence + count) & 0x7FFF_FFFF


def older(parcels: list[Parcel], start: int, late: float) -> int:
    """How many parcels from ``start`` on were born before ``late``."""
    count = 0
    for parcel in parcels[start:] if start else parcels:
        if parcel.born > late:
            break
        count += 1
    return count
