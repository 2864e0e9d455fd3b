"""Tries again what was put aside."""

from __future__ import annotations

import logging
from typing import Final

from prometheus_client import CollectorRegistry

from room_common.crypto import UnknownKey
from room_common.errors import DependencyUnavailable
from room_common.postgres import waiting_replies
from room_common.postgres.database import Database
from room_common.service.parts import Loop
from room_common.telemetry.metrics import gauge
from room_scheduler.inbox import WAIT_SECONDS, Inbox
from room_scheduler.metrics import WAITING

_log = logging.getLogger(__name__)
_PAGE: Final = 50
_LOOK_SECONDS: Final = 5.0


class WaitingReplies(Loop):
    """Takes due replies a page at a time. A reply may be taken twice by a crash; its row in the inbox is made once."""

    name = "waiting-replies"

    def __init__(self, database: Database, inbox: Inbox, registry: CollectorRegistry) -> None:
        super().__init__()
        self._database = database
        self._inbox = inbox
        self._waiting = gauge(registry, WAITING)

    async def run(self) -> None:
        while await self.pause(_LOOK_SECONDS):
            try:
                await self.look()
            except DependencyUnavailable as error:
                _log.warning("replies go on waiting", extra={"reason": str(error)})

    async def look(self) -> None:
        """Try every reply whose time has come, once."""
        async with self._database.transaction() as conn:
            due = await waiting_replies.take_due(conn, _PAGE, WAIT_SECONDS)
        for waiting in due:
            try:
                await self._inbox.take(waiting.record)
            except UnknownKey:
                continue
            async with self._database.transaction() as conn:
                await waiting_replies.remove(conn, waiting.id)
        async with self._database.transaction() as conn:
            self._waiting.set(await waiting_replies.count(conn))
