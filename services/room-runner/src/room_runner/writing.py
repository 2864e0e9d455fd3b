"""The transactions of a cycle: short, lease-checked, and tried until they are known to have happened or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar
from uuid import UUID

import structlog

from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.postgres import cycles
from room_common.postgres.database import Database
from room_common.postgres.leases import Lease, Leased, lease_transaction

T = TypeVar("T")
What = Literal["open", "look", "step", "reminder", "call", "tool", "finish", "release"]

_FIRST_PAUSE: Final = 0.2
_LAST_PAUSE: Final = 5.0
_log = structlog.get_logger(__name__)


class Writer:
    """Writes under one lease."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self.database = database
        self.lease = lease

    async def write(self, what: What, work: Callable[[Leased], Awaitable[T]]) -> T:
        """One lease-checked transaction, tried until PostgreSQL answers. Raises ``LeaseLost``.

        A try may have committed without an answer: ``work`` looks first for what it would write.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                async with lease_transaction(self.database, self.lease) as leased:
                    result = await work(leased)
                    crash_point(f"runner.before_{what}_commit")
                crash_point(f"runner.after_{what}_commit")
                return result
            except DependencyUnavailable as error:
                _log.warning("write of a cycle waits", reason=str(error), instance_id=str(self.lease.instance_id))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def status(self, cycle_id: UUID) -> str | None:
        """How the cycle's row stands, whoever has the lease."""
        while True:
            try:
                async with self.database.transaction() as conn:
                    return await cycles.status(conn, cycle_id)
            except DependencyUnavailable:
                await asyncio.sleep(_LAST_PAUSE)
