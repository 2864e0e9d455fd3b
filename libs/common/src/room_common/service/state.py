"""Tell the database every five seconds that this process lives, what holds it up and how far behind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from room_common.errors import DependencyUnavailable
from room_common.postgres import service_state
from room_common.postgres.database import Database
from room_common.service.parts import Context, Loop, SettingsT
from room_common.telemetry.metrics import room_version

SECONDS = 5.0
"""Between two reports. A process not seen for several of them is down."""

_LIMIT = 3.0
_log = structlog.get_logger(__name__)


class StateReporter(Loop):
    """Writes the ``service_state`` row of this process. ``held`` and ``lag`` are asked at each report; None is
    "no"/"unknown".

    A report that fails is dropped: the next one says it all again.
    """

    name = "state"

    def __init__(
        self,
        database: Database,
        context: Context[SettingsT],
        *,
        held: Callable[[], str | None] = lambda: None,
        lag: Callable[[], int | None] = lambda: None,
        detail: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        super().__init__()
        self._database = database
        self._service = context.service
        self._process = context.instance
        self._held = held
        self._lag = lag
        self._detail = detail

    async def run(self) -> None:
        swept = False
        while True:
            try:
                async with self._database.transaction(_LIMIT) as conn:
                    if not swept:
                        await service_state.remove_dead(conn, self._service)
                    await service_state.save(conn, self._state())
                swept = True
            except DependencyUnavailable as error:
                _log.debug("state not reported", reason=str(error))
            if not await self.pause(SECONDS):
                return

    async def stop(self) -> None:
        await super().stop()
        try:
            async with self._database.transaction(_LIMIT) as conn:
                await service_state.remove(conn, self._service, self._process)
        except DependencyUnavailable:
            pass

    def _state(self) -> service_state.ProcessState:
        return service_state.ProcessState(
            service=self._service,
            process=self._process,
            version=room_version(),
            held_reason=self._held(),
            lag=self._lag(),
            detail=self._detail(),
        )
