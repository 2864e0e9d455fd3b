"""Does harm, at random and written down: kill -9, freezing, restarts of the database and the broker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from room_local.parts.postgres import Postgres
from room_testing.overlap.history import Fault, History
from room_testing.parts import Broker
from room_testing.processes import ServiceProcess


class Nemesis:
    """``freeze`` is the length of a SIGSTOP, ``pace`` the mean pause between faults, both in seconds."""

    def __init__(
        self,
        history: History,
        runners: Sequence[ServiceProcess],
        outbounds: Sequence[ServiceProcess],
        postgres: Postgres | None,
        broker: Broker | None,
        *,
        freeze: float,
        pace: float,
        say: Callable[[str], None],
    ) -> None:
        self._history = history
        self._random = random.Random(history.seed + 1)
        self._runners = runners
        self._outbounds = outbounds
        self._postgres = postgres
        self._broker = broker
        self._freeze = freeze
        self._pace = pace
        self._say = say
        self._frozen: set[str] = set()
        self._thawing: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Do harm for so long, then undo what is left of it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._random.uniform(0.5, 1.5) * self._pace))
            await self._strike()
        await asyncio.gather(*self._thawing)

    async def _strike(self) -> None:
        draw = self._random.random()
        if draw < 0.50:
            await self._kill(self._random.choice(self._runners))
        elif draw < 0.70:
            await self._stop(self._random.choice(self._runners))
        elif draw < 0.86:
            await self._kill(self._random.choice(self._outbounds))
        elif draw < 0.94 and self._postgres is not None:
            await self._restart("postgresql", self._postgres.restart)
        elif self._broker is not None:
            await self._broken()

    async def _kill(self, service: ServiceProcess) -> None:
        if service.name in self._frozen:
            return
        fault = self._note("kill", service.name)
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.launch)
        fault.end = time.monotonic()

    async def _stop(self, service: ServiceProcess) -> None:
        if service.name in self._frozen or len(self._frozen) + 1 >= len(self._runners):
            return
        self._frozen.add(service.name)
        fault = self._note("freeze", service.name)
        service.pause()

        async def thaw() -> None:
            await asyncio.sleep(self._freeze)
            service.resume()
            fault.end = time.monotonic()
            self._frozen.discard(service.name)

        fault.end = fault.start + self._freeze
        task = asyncio.create_task(thaw())
        self._thawing.add(task)
        task.add_done_callback(self._thawing.discard)

    async def _restart(self, target: str, restart: Callable[[], None]) -> None:
        fault = self._note("restart", target)
        await asyncio.to_thread(restart)
        fault.end = time.monotonic()

    async def _broken(self) -> None:
        broker = self._broker
        assert broker is not None
        if broker.durable:
            await self._restart("kafka", broker.restart)
            return
        fault = self._note("freeze", "kafka")
        broker.pause()
        await asyncio.sleep(3.0)
        broker.resume()
        fault.end = time.monotonic()

    def _note(self, kind: str, target: str) -> Fault:
        now = time.monotonic()
        fault = Fault(kind, target, now, now)
        self._history.faults.append(fault)
        self._say(f"{kind} {target}")
        return fault
