"""Telling an instance that its own model was refused and the default answered instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from room_common.domain.deliveries import Source
from room_common.errors import DependencyUnavailable
from room_common.postgres import activity
from room_common.postgres.database import Database

QUIET_SECONDS: Final = 3600.0
"""So long an instance is not told again by this process."""

log = structlog.get_logger(__name__)


class FallbackAlerts:
    """One activity row per instance and hour at most."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._told: dict[UUID, float] = {}

    async def tell(self, source: Source) -> None:
        """Note the fallback. Never raises: a note must not hold up a verdict."""
        now = self._clock()
        if self._told.get(source.instance_id, float("-inf")) + QUIET_SECONDS > now:
            return
        self._told = {key: at for key, at in self._told.items() if at + QUIET_SECONDS > now} | {source.instance_id: now}
        log.warning("an instance's own model was refused", instance_id=str(source.instance_id), tier="fast")
        try:
            async with self._database.transaction(timeout=5) as conn:
                await activity.append(
                    conn,
                    source.instance_id,
                    "error",
                    "the instance's own model of tier fast was refused; the default model answers instead",
                    severity="warning",
                )
        except DependencyUnavailable:
            self._told.pop(source.instance_id, None)
