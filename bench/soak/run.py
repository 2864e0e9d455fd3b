"""Minutes of half the rate that intake reaches, while every part is restarted: is it flat, and is anything lost?

A real ingest and a real matcher on Apache Kafka, PostgreSQL and Redis; the model answers at once. First the top rate is
measured, from posting at full speed to the last decision, then half of it is posted at fixed times. Every part is
stopped and started, later killed and started. Memory, descriptors, the time to an answer and the time to a decision go
into a drawing.
Exits 1 when a 200 has no row in the ledger, or when memory or descriptors grew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
from plot import Mark, Panel, draw

from room_common.identity import new_id
from room_local.parts.addresses import HOST, free_port
from room_local.parts.kafka_jars import available
from room_local.parts.server import Server
from room_testing.ingest_process import ingest_settings
from room_testing.matching import Matching, SeededSource
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess

HERE = Path(__file__).parent
SENDERS = 40
SAMPLE_SECONDS = 5.0
BUCKET_SECONDS = 15
FILLER = "".join(f'"field_{number}":"{number:032x}",' for number in range(36))
GROWTH = 1.15
"""The most that the second half may hold more than the first, in memory and descriptors."""

Series = dict[str, list[tuple[float, float]]]
"""Values by name, each with its minute."""


class Model(Server):
    """The model that costs nothing."""

    name = "model"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "model.log")
        self.port = free_port()

    def command(self) -> Sequence[str]:
        return [sys.executable, str(HERE.parent / "matcher" / "model.py"), str(self.port)]

    def answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True


@dataclass
class Traffic:
    """Of ten requests, six carry a wrong signature, three a payload whose verdict is remembered, one a new payload."""

    signed: Sequence[SeededSource]
    plain: Sequence[SeededSource]

    def request(self, number: int) -> bytes:
        kind = number % 10
        sources = self.signed if kind < 6 else self.plain
        source = sources[number // 10 % len(sources)]
        unique = f"{number}" if kind == 9 else f"{number % 5}"
        body = f'{{"unique":"{unique}",{FILLER}"end":1}}'
        head = (
            f"POST /webhooks/{source.token} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"
            f"x-github-event: push\r\nx-github-delivery: {new_id()}\r\nx-hub-signature-256: sha256={number:064x}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return (head + body).encode()


@dataclass
class Senders:
    """Posts at fixed times, ``rate`` in all, or as fast as answers come when it is 0. ``seen``: (end, seconds)."""

    port: int
    traffic: Traffic
    number: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    seen: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, rate: float, seconds: float) -> None:
        begun = time.monotonic()
        await asyncio.gather(*(self._sender(index, rate, begun, begun + seconds) for index in range(SENDERS)))

    async def _sender(self, index: int, rate: float, begun: float, end: float) -> None:
        due = begun + index / rate if rate else begun
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if connection is None:
                connection = await self._connect()
            self.number += 1
            connection = await self._post(connection, self.traffic.request(self.number))
            now = time.monotonic()
            self.seen.append((now, now - due))
            due = due + SENDERS / rate if rate else now
        if connection is not None:
            connection[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_connection(HOST, self.port)
            except OSError:
                await asyncio.sleep(0.05)

    async def _post(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        reader, writer = connection
        try:
            writer.write(request)
            async with asyncio.timeout(30):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.unanswered += 1
            writer.close()
            return None
        self.answers[int(head[9:12])] += 1
        if b"connection: close" in head:
            writer.close()
            return None
        return connection


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, parts: Parts, folder: Path) -> None:
        self.options = options
        self.parts = parts
        self.folder = folder
        self.port = free_port()
        self.marks: list[Mark] = []
        self.memory: Series = {"ingest": [], "matcher": []}
        self.descriptors: Series = {"ingest": [], "matcher": []}
        self.load: list[tuple[float, float]] = []

    async def run(self) -> int:
        """Start everything, find the top rate, soak, compare, draw. The exit code."""
        self.dsn = self.parts.create_database()
        self.world = Matching(self.dsn, self.parts.kafka_bootstrap(), idempotence=True)
        await self.world.open()
        model = Model(self.folder / "model")
        environment = self.world.environment(
            f"http://{HOST}:{model.port}/v1",
            ROOM_REDIS__URL=self.parts.redis_url(),
            ROOM_LOG__LEVEL="warning",
            ROOM_LLM__MAX_RETRIES="2",
        )
        given = ingest_settings(
            self.world.bootstrap,
            self.dsn,
            self.port,
            ROOM_INGEST__RATE_PER_TOKEN="0",
            ROOM_LOG__LEVEL="warning",
        )
        self.services: dict[str, Server] = {
            "model": model,
            "matcher": ServiceProcess("room_matcher", environment, self.folder),
            "ingest": ServiceProcess("room_ingest", given, self.folder),
        }
        try:
            for service in self.services.values():
                await asyncio.to_thread(service.start)
            self.senders = Senders(self.port, await self._traffic())
            rate = self.options.rate or await self._top_rate() / 2
            await self._soak(rate)
            decided, _ = await self._decided()
            return await self._report(rate, decided)
        finally:
            for service in reversed(self.services.values()):
                await asyncio.to_thread(service.stop)
            await self.world.close()

    async def _traffic(self) -> Traffic:
        instance = await self.world.instance(budget=None)
        signed = [await self.world.source(instance, "github", secrets=["secret"]) for _ in range(50)]
        return Traffic(signed, [await self.world.source(instance, "github") for _ in range(50)])

    # -- phases

    async def _top_rate(self) -> float:
        """Decisions a second from the first webhook to the last outcome, of as many as ingest takes in some seconds."""
        began = time.monotonic()
        await self.senders.run(0, self.options.calibrate)
        rows, at = await self._decided()
        top = rows / (at - began)
        print(f"top rate: {top:,.0f} decisions/s, {self.senders.answers[200]:,} posted", flush=True)
        self.senders.seen.clear()
        return top

    async def _soak(self, rate: float) -> None:
        self.began, self.began_at = time.monotonic(), time.time()
        seconds = self.options.minutes * 60
        print(f"posting {rate:,.0f}/s for {self.options.minutes:g} minutes", flush=True)
        sampler = asyncio.create_task(self._sample())
        await asyncio.gather(self.senders.run(rate, seconds), self._restarts(seconds))
        sampler.cancel()

    async def _restarts(self, seconds: float) -> None:
        parts: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            name: (service.restart, _in_turn(service.kill, service.start)) for name, service in self.services.items()
        }
        broker = self.parts.broker()
        parts["broker"] = (broker.restart, _in_turn(broker.kill, broker.heal))
        for name, server in (("postgresql", self.parts.postgres()), ("redis", self.parts.redis())):
            parts[name] = (server.restart, _in_turn(server.kill, server.start))
        turns = [(name, turn) for turn in (0, 1) for name in parts]
        for number, (name, turn) in enumerate(turns, 1):
            await asyncio.sleep(max(0.0, self.began + seconds * number / (len(turns) + 1) - time.monotonic()))
            self.marks.append(Mark(self._minutes(), f"{name} {('restart', 'kill')[turn]}"))
            print(f"   {self.marks[-1].at:5.1f} min: {self.marks[-1].text}", flush=True)
            await asyncio.to_thread(parts[name][turn])

    async def _sample(self) -> None:
        while True:
            for name, kept in self.memory.items():
                try:
                    process = psutil.Process(self.services[name].pid or -1)
                    kept.append((self._minutes(), process.memory_info().rss / 2**20))
                    self.descriptors[name].append((self._minutes(), float(process.num_fds())))
                except (psutil.Error, ValueError):
                    continue
            self.load.append((self._minutes(), os.getloadavg()[0]))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _decided(self) -> tuple[int, float]:
        """Wait until every 200 has its row and no more come; how many there are, and when the last one came."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 30:
            await asyncio.sleep(1)
            try:
                rows = await self._rows()
            except psycopg.Error:
                continue
            if rows != last:
                last, since = rows, time.monotonic()
            elif rows >= self.senders.answers[200] and time.monotonic() - since > 3:
                break
        return last, since

    async def _rows(self) -> int:
        (row,) = await self.world.query("select count(*)::int as n from webhook_deliveries")
        return int(row["n"])

    def _minutes(self) -> float:
        return (time.monotonic() - self.began) / 60

    # -- what came of it

    async def _report(self, rate: float, rows: int) -> int:
        senders, problems = self.senders, []
        (twice,) = await self.world.query("select count(*) - count(distinct id) as n from webhook_deliveries")
        print(
            f"{senders.number:,} posted, answers {dict(senders.answers)}, {senders.unanswered} without one; "
            f"{rows:,} rows in the ledger, {twice['n']} twice"
        )
        if not senders.answers[200] <= rows <= senders.answers[200] + senders.unanswered or twice["n"]:
            problems.append("rows and answers do not agree")
        for what, kinds in (("MiB", self.memory), ("descriptors", self.descriptors)):
            for name, values in kinds.items():
                half = self.options.minutes / 2
                first = max((value for at, value in values if at < half), default=0)
                second = max((value for at, value in values if at >= half), default=0)
                print(f"{name}: at most {first:.0f} {what} in the first half, {second:.0f} in the second")
                if second > first * GROWTH + 2:
                    problems.append(f"{name} grew")
        answers, decisions = self._answer_times(), await self._decision_times()
        for name, times in (("answer", answers), ("decision", decisions)):
            self._compare(name, times)
        self._draw(rate, answers, decisions)
        print("\n".join(f"WRONG: {problem}" for problem in problems) or "flat, and nothing lost")
        return 1 if problems else 0

    def _answer_times(self) -> Series:
        buckets: dict[int, list[float]] = {}
        for at, seconds in self.senders.seen:
            buckets.setdefault(int((at - self.began) // BUCKET_SECONDS), []).append(seconds * 1000)
        return _series({number: _quantiles(values) for number, values in buckets.items() if len(values) > 10})

    async def _decision_times(self) -> Series:
        rows = await self.world.query(
            """
            select floor(extract(epoch from received_at - to_timestamp(%s)) / %s)::int as bucket,
                   percentile_cont(array[0.5, 0.99]) within group
                       (order by extract(epoch from decided_at - received_at)) as q
            from webhook_deliveries where received_at >= to_timestamp(%s) group by 1 order by 1
            """,
            self.began_at,
            BUCKET_SECONDS,
            self.began_at,
        )
        return _series({row["bucket"]: (row["q"][0] * 1000, row["q"][1] * 1000) for row in rows})

    def _compare(self, name: str, times: Series) -> None:
        """Medians of the buckets that are away from restarts, at the beginning and at the end."""
        for quantile, points in times.items():
            calm = [(at, value) for at, value in points if not any(-0.3 < at - mark.at < 0.8 for mark in self.marks)]
            third = self.options.minutes / 3
            first = [value for at, value in calm if at < third]
            last = [value for at, value in calm if at >= 2 * third]
            if first and last:
                print(
                    f"time to {name}, {quantile}, away from restarts: {statistics.median(first):.1f} ms in the first "
                    f"third, {statistics.median(last):.1f} ms in the last"
                )

    def _draw(self, rate: float, answers: Series, decisions: Series) -> None:
        panels = [
            Panel("resident memory, MiB", self.memory),
            Panel("open descriptors", self.descriptors),
            Panel("time to the answer, ms: median", {"median": answers["median"]}),
            Panel("time to the answer, ms: p99", {"p99": answers["p99"]}),
            Panel("receipt to decision, ms: median", {"median": decisions["median"]}),
            Panel("receipt to decision, ms: p99", {"p99": decisions["p99"]}),
            Panel("load of the machine", {"load average, 1 min": self.load}),
        ]
        title = f"ingest and matcher, {rate:,.0f} webhooks/s, every part restarted and killed"
        Path(self.options.plot).write_text(draw(title, panels, self.marks, self.options.minutes))
        print(f"drawn in {self.options.plot}")


def _in_turn(*acts: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        for one in acts:
            one()

    return act


def _quantiles(values: list[float]) -> tuple[float, float]:
    values.sort()
    return values[len(values) // 2], values[int(len(values) * 0.99)]


def _series(buckets: dict[int, tuple[float, float]]) -> Series:
    middles = [((number + 0.5) * BUCKET_SECONDS / 60, pair) for number, pair in sorted(buckets.items())]
    return {
        "median": [(at, median) for at, (median, _) in middles],
        "p99": [(at, late) for at, (_, late) in middles],
    }


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=float, default=0, help="requests a second, instead of half the top rate")
    parser.add_argument(
        "--calibrate", type=float, default=10, help="seconds of posting by which the top rate is measured"
    )
    parser.add_argument("--plot", default=str(HERE / "soak.svg"))
    options = parser.parse_args()
    parts = Parts(choose(os.environ | {"ROOM_TEST_PARTS": "apache"}, available))
    try:
        with tempfile.TemporaryDirectory(prefix="room-soak-") as folder:
            return asyncio.run(Soak(options, parts, Path(folder)).run())
    finally:
        parts.close()


if __name__ == "__main__":
    sys.exit(main())
