"""A run: rooms with a stream of events and replies, services, faults, and the end of all work."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from room_local.parts.postgres import Postgres
from room_testing.matching import ENCRYPTION_KEYS, PUBLIC_URL
from room_testing.overlap.history import History, Write
from room_testing.overlap.nemesis import Nemesis
from room_testing.overlap.peers import Peers, fingerprint
from room_testing.parts import Broker
from room_testing.processes import ServiceProcess
from room_testing.running import Running, SeededRoom

LEDGER: Final = (Path(__file__).parent / "ledger.sql").read_text()
_DATABASE_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a run is. ``quick`` shortens leases and freezes in proportion."""

    seed: int = 1
    rooms: int = 200
    runners: int = 4
    seconds: float = 600.0
    quick: bool = False
    settle_seconds: float = 240.0

    def runner_settings(self) -> dict[str, str]:
        """Of a runner, beside addresses. A run that is not quick has the defaults."""
        common = {"ROOM_RUNNER__REPUBLISH_SECONDS": "20", "ROOM_RUNNER__BACKOFF_SECONDS": "2"}
        if not self.quick:
            return common
        return common | {
            "ROOM_RUNNER__LEASE_SECONDS": "4",
            "ROOM_RUNNER__RENEW_SECONDS": "0.5",
            "ROOM_RUNNER__FENCE_SECONDS": "2.5",
            "ROOM_RUNNER__SWEEP_SECONDS": "0.5",
            "ROOM_RUNNER__CLAIM_SECONDS": "0.5",
        }


class Run:
    """One run in a database of its own, on a broker that has the topics."""

    def __init__(
        self,
        plan: Plan,
        dsn: str,
        bootstrap: str,
        folder: Path,
        *,
        idempotence: bool,
        postgres: Postgres | None,
        broker: Broker | None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.plan = plan
        self.history = History(plan.seed)
        self._world = Running(dsn, bootstrap, idempotence=idempotence)
        self._folder = folder
        self._postgres = postgres
        self._broker = broker
        self._say = say
        self._random = random.Random(plan.seed + 2)
        self._rooms: list[SeededRoom] = []

    async def run(self) -> History:
        """The whole of it; raises ``TimeoutError`` for work that does not come to an end, with the history complete."""
        peers = Peers(self.history, 4.0 if self.plan.quick else 10.0)
        await self._world.open()
        async with await psycopg.AsyncConnection.connect(self._world.dsn) as conn:
            await conn.execute(LEDGER.encode())
        await peers.start()
        services = self._services(peers)
        try:
            self._rooms = [await self._world.room() for _ in range(self.plan.rooms)]
            await asyncio.to_thread(self._start, services)
            runners = [service for service in services if service.package == "room_runner"]
            outbounds = [service for service in services if service.package == "room_outbound"]
            nemesis = Nemesis(
                self.history,
                runners,
                outbounds,
                self._postgres,
                self._broker,
                freeze=6.0 if self.plan.quick else 40.0,
                pace=2.0 if self.plan.quick else 4.0,
                say=self._say,
            )
            await asyncio.gather(nemesis.run(self.plan.seconds), self._feed())
            self._say("faults are over")
            await self._settle()
        finally:
            for service in services:
                await asyncio.to_thread(service.resume)
                await asyncio.to_thread(service.kill)
            await self._read()
            await peers.stop()
            await self._world.close()
        return self.history

    def _services(self, peers: Peers) -> list[ServiceProcess]:
        kafka = {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self._world.bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(self._world.idempotence).lower(),
            "ROOM_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "ROOM_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "ROOM_ENCRYPTION__KEYS": ENCRYPTION_KEYS,
            "ROOM_LOG__LEVEL": "info",
        }
        runner = kafka | {"ROOM_LLM__BASE_URL": peers.model_url, "ROOM_LLM__MAX_RETRIES": "0"}
        outbound = kafka | {
            "ROOM_OUTBOUND__LOCAL_INBOX_URL": peers.inbox_url,
            "ROOM_OUTBOUND__LEASE_SECONDS": "15",
        }
        scheduler = kafka | {"ROOM_SCHEDULER__TICK_SECONDS": "2", "ROOM_PUBLIC_URL": PUBLIC_URL}
        made = [("room_runner", runner | self.plan.runner_settings())] * self.plan.runners
        made += [("room_outbound", outbound)] * 2 + [("room_scheduler", scheduler)]
        services = []
        for number, (package, settings) in enumerate(made, 1):
            named = make_conninfo(self._world.dsn, application_name=f"runner-{number}")
            dsn = named if package == "room_runner" else self._world.dsn
            service = ServiceProcess(package, settings | {"ROOM_DATABASE__DSN": dsn}, self._folder, number=number)
            service.name = f"{package.removeprefix('room_')}-{number}"
            services.append(service)
        return services

    def _start(self, services: list[ServiceProcess]) -> None:
        for service in services:
            service.launch()
        for service in services:
            service.wait_ready()

    async def _feed(self) -> None:
        """Events and replies, until a little before the faults end."""
        end = time.monotonic() + self.plan.seconds * 0.9
        pause = 8.0 / self.plan.rooms
        while time.monotonic() < end:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * pause)
            room = self._random.choice(self._rooms)
            try:
                if self._random.random() < 0.15:
                    await self._world.reply(room, f"reply-{self._random.getrandbits(48):012x}")
                    await self._world.wake(room)
                else:
                    await self._world.event(room)
            except _DATABASE_AWAY:
                await asyncio.sleep(0.5)

    async def _settle(self) -> None:
        async with asyncio.timeout(self.plan.settle_seconds):
            while True:
                try:
                    if not await self._open_work():
                        return
                except _DATABASE_AWAY:
                    pass
                await asyncio.sleep(1.0)

    async def _open_work(self) -> bool:
        (row,) = await self._world.query(
            """
            select exists (select from event_backlog where status not in ('completed', 'failed'))
                or exists (select from room_inbox where status in ('unread', 'taken'))
                or exists (select from room_cycles where status = 'running')
                or exists (select from outbound_messages where status <> 'sent') as open
            """
        )
        return bool(row["open"])

    async def _read(self) -> None:
        history, query = self.history, self._world.query
        history.writes = [
            Write(str(row["room"]), row["what"], str(row["cycle"]), row["writer"], row["epoch"])
            for row in await query("select * from overlap_writes order by seq")
        ]
        history.events = await self._rows("select id, status, attempts from event_backlog order by id")
        history.replies = await self._rows("select text, status, attempts from room_inbox order by id")
        history.cycles = [
            {name: value for name, value in row.items() if name != "messages"}
            | {"opening": fingerprint(row["messages"])}
            for row in await self._rows(
                "select id, status, error_kind, resumes, losses, steps, array(select m.content from cycle_messages m"
                " where m.cycle_id = c.id and m.seq < 2 order by m.seq) as messages from room_cycles c order by id"
            )
        ]
        history.messages = await self._rows(
            "select id, instance_id as room, cycle_id as cycle, seq, text, status from outbound_messages"
            " order by instance_id, seq"
        )

    async def _rows(self, statement: str) -> list[Mapping[str, Any]]:
        return [
            {name: str(value) if name in ("id", "room", "cycle") else value for name, value in row.items()}
            for row in await self._world.query(statement)
        ]
