"""The topic registry: every topic Room uses, once.

Topic creation, the documents under contracts/ and the command line's ``room topics`` all read it. Topics are never
created by a client on the fly. Partition counts are defaults; once an installation has its topics they are final,
because a key's partition depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_DAY: Final = 24 * 60 * _MINUTE
_GIB: Final = 1 << 30

WEBHOOKS_RAW: Final = "room.webhooks.raw"
WEBHOOKS_SLOW: Final = "room.webhooks.slow"
WEBHOOKS_DEAD: Final = "room.webhooks.dead"
REPLIES_RAW: Final = "room.replies.raw"
REPLIES_DEAD: Final = "room.replies.dead"
TICKS: Final = "room.ticks"
OUTBOUND: Final = "room.outbound"
OUTBOUND_DEAD: Final = "room.outbound.dead"

MATCHER_GROUP: Final = "room-matcher"
MATCHER_SLOW_GROUP: Final = "room-matcher-slow"
SCHEDULER_GROUP: Final = "scheduler"
INTAKE_GROUPS: Final[Mapping[str, str]] = {
    WEBHOOKS_RAW: MATCHER_GROUP,
    WEBHOOKS_SLOW: MATCHER_SLOW_GROUP,
    REPLIES_RAW: SCHEDULER_GROUP,
}
"""Who reads what came from outside, by topic. Ticks and outbound records only wake; what they say is in PostgreSQL."""

MAX_RECORD_BYTES: Final = 1 << 20
"""``max.message.bytes`` of every topic; producers refuse more before it reaches a broker."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. ``retention_ms`` is time; ``retention_bytes`` (per partition) is None where only time bounds it.

    ``log_append_time`` topics carry the broker's clock. ``message`` names the contract of the value: a JSON Schema
    under contracts/, or ``raw`` for a request body byte for byte with the envelope in headers.
    """

    name: str
    key: str
    message: str
    partitions: int
    retention_ms: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    description: str
    dead_letter: str | None = None
    retention_bytes: int | None = None
    log_append_time: bool = False
    cleanup: str = "delete"
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, str]:
        """The broker's settings of this topic, as strings."""
        config = {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(MAX_RECORD_BYTES),
            "message.timestamp.type": "LogAppendTime" if self.log_append_time else "CreateTime",
        }
        if self.retention_bytes is not None:
            config["retention.bytes"] = str(self.retention_bytes)
        return config | self.extra


TOPICS: Final[tuple[Topic, ...]] = (
    Topic(
        WEBHOOKS_RAW,
        key="first 16 hex digits of SHA-256(token)",
        message="raw",
        partitions=32,
        retention_ms=7 * _DAY,
        retention_bytes=8 * _GIB,
        producers=("ingest",),
        consumers=("matcher",),
        dead_letter=WEBHOOKS_DEAD,
        log_append_time=True,
        description="Every webhook with a right-tagged token, byte for byte as it was received.",
    ),
    Topic(
        WEBHOOKS_SLOW,
        key="as room.webhooks.raw",
        message="raw",
        partitions=8,
        retention_ms=7 * _DAY,
        retention_bytes=8 * _GIB,
        producers=("matcher",),
        consumers=("matcher",),
        dead_letter=WEBHOOKS_DEAD,
        log_append_time=True,
        description="Webhooks of sources that send more than their share, unchanged, so that nobody waits behind them.",
    ),
    Topic(
        WEBHOOKS_DEAD,
        key="as room.webhooks.raw",
        message="raw",
        partitions=8,
        retention_ms=30 * _DAY,
        producers=("matcher",),
        consumers=(),
        log_append_time=True,
        description="Deliveries that failed by their own fault, with the error's kind and where they came from.",
    ),
    Topic(
        REPLIES_RAW,
        key="SHA-256(channel token), hex",
        message="raw",
        partitions=8,
        retention_ms=7 * _DAY,
        producers=("ingest", "admin"),
        consumers=("scheduler",),
        dead_letter=REPLIES_DEAD,
        log_append_time=True,
        description="What people answered on a channel, byte for byte as the provider posted it.",
    ),
    Topic(
        REPLIES_DEAD,
        key="as room.replies.raw",
        message="raw",
        partitions=4,
        retention_ms=30 * _DAY,
        producers=("scheduler",),
        consumers=(),
        log_append_time=True,
        description="Replies that could not be read, with the error's kind.",
    ),
    Topic(
        TICKS,
        key="instance id",
        message="tick-command",
        partitions=16,
        retention_ms=15 * _MINUTE,
        producers=("scheduler",),
        consumers=("room-runner",),
        description="Wake-ups of rooms with work. State lives in rows, so a lost or doubled tick is harmless.",
    ),
    Topic(
        OUTBOUND,
        key="instance id + target",
        message="outbound-message",
        partitions=16,
        retention_ms=7 * _DAY,
        producers=("room-runner", "outbound"),
        consumers=("outbound",),
        dead_letter=OUTBOUND_DEAD,
        description="Wake-ups of the outbox: the row decides what is sent.",
    ),
    Topic(
        OUTBOUND_DEAD,
        key="instance id + target",
        message="outbound-message",
        partitions=4,
        retention_ms=30 * _DAY,
        producers=("outbound",),
        consumers=(),
        description="Messages that a provider refused for good, with the error's kind and the attempts.",
    ),
)


def topic(name: str) -> Topic:
    """The registered topic of that name. Raises ``KeyError`` for any other."""
    for candidate in TOPICS:
        if candidate.name == name:
            return candidate
    raise KeyError(name)
