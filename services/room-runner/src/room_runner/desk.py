"""What the cycles of one process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from room_common.postgres.database import Database
from room_runner.metrics import CycleMetrics
from room_runner.outside import NoTools, Outside
from room_runner.provider import Provider
from room_runner.settings import CycleSettings


@dataclass(frozen=True, slots=True)
class Desk:
    """``written`` is told of each cycle that has committed a message, ``draining`` set once the process is to end."""

    database: Database
    provider: Provider
    settings: CycleSettings
    metrics: CycleMetrics
    written: Callable[[UUID], None]
    outside: Outside = field(default_factory=NoTools)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
