"""What a person may choose about a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KafkaKind = Literal["embedded", "apache"]

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class StackOptions:
    """``kafka`` picks the broker; ``broker_memory_limit`` (bytes) is when the embedded one is restarted.

    Ports are wishes: a free one is taken, and said, where somebody listens already; 0 asks for a free one.
    ``public_url`` is what senders post to, where a tunnel or proxy leads here; None: they are on this machine.
    ``tick_seconds`` None leaves the scheduler's own default. ``ready_seconds`` bounds the wait for all services.
    """

    kafka: KafkaKind = "embedded"
    broker_memory_limit: int = GIB
    ingest_port: int = 8080
    operations_port: int = 8081
    admin_port: int = 8090
    public_url: str | None = None
    tick_seconds: float | None = None
    ready_seconds: float = 90.0
