"""What happened in a run: faults, requests to the model, deliveries to people, and every accepted write of a cycle.

Times are seconds on the checker's monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Fault:
    """``kind``: kill, freeze, restart. ``target``: runner-2, outbound-1, postgresql, kafka; ``end`` when it is over."""

    kind: str
    target: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Request:
    """A model call as the provider saw it: of which cycle, and after how many answers."""

    at: float
    cycle: str
    step: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as the person's side saw it."""

    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Write:
    """An accepted write, in the order in which the room's row was locked: by whom, under which epoch."""

    room: str
    what: str
    cycle: str
    writer: str
    epoch: int


@dataclass(slots=True)
class History:
    """One run. ``events`` are id and status, ``replies`` text and status, ``messages`` rows of the outbox in order."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    replies: list[Mapping[str, Any]] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    cycles: list[Mapping[str, Any]] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """One JSON object."""
        file.write_text(json.dumps(asdict(self), default=str))
