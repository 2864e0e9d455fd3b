"""A Kafka record as the services see it, free of client types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``timestamp_ms`` is the broker's append time where the topic says so, else the producer's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def from_consumer(message: Any) -> Record:
    """From aiokafka's record. A header without a value counts as empty."""
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp,
        key=message.key,
        value=message.value,
        headers=tuple((name, value or b"") for name, value in message.headers),
    )
