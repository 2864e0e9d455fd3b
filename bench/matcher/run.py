"""How fast the matcher decides, how fair, in how much memory. Real parts; the model is a stub that costs nothing.

Exits 1 when a floor does not hold. ``--only drops,remembered`` runs some of it; ``--backlog 500000`` is the full
size of the memory run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiokafka import AIOKafkaProducer

from room_common.contracts.envelope import Envelope, encode
from room_common.contracts.topics import WEBHOOKS_RAW
from room_common.domain.tokens import record_key
from room_common.identity import new_id
from room_local.parts.addresses import HOST, free_port
from room_local.parts.kafka_jars import available
from room_testing.matching import Matching, SeededSource
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess

HERE = Path(__file__).parent
FILLER = "".join(f'"field_{number}":"{number:032x}",' for number in range(36))


@dataclass(frozen=True)
class Figure:
    """One line of the result. ``floor`` None: not judged."""

    name: str
    value: float
    unit: str
    floor: float | None
    ceiling: float | None = None

    @property
    def holds(self) -> bool:
        return (self.floor is None or self.value >= self.floor) and (self.ceiling is None or self.value <= self.ceiling)

    def line(self) -> str:
        bound = f">= {self.floor:g}" if self.floor is not None else f"<= {self.ceiling:g}" if self.ceiling else ""
        verdict = "" if not bound else ("ok" if self.holds else "BELOW" if self.floor is not None else "ABOVE")
        return f"{self.name:58} {self.value:10,.2f} {self.unit:12} {bound:>9} {verdict}"


@dataclass(frozen=True)
class Run:
    """Records worked off by one matcher: the rate over the middle of the run, CPU milliseconds a record, peak MiB."""

    per_second: float
    cpu: float
    peak: float
    growth: float


class Bench:
    """All scenarios on one broker, one PostgreSQL, one Redis."""

    def __init__(self, options: argparse.Namespace, parts: Parts, folder: Path) -> None:
        self.options = options
        self.parts = parts
        self.folder = folder
        self.idempotence = parts.choice.kafka != "wheels"
        self.figures: list[Figure] = []
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.number = 0

    async def run(self) -> int:
        """The exit code."""
        model = subprocess.Popen([sys.executable, str(HERE / "model.py"), str(self.port)])
        self.world = Matching(self.parts.create_database(), self.parts.kafka_bootstrap(), idempotence=self.idempotence)
        try:
            await self.world.open()
            await self._answers()
            wanted = (
                self.options.only.split(",")
                if self.options.only
                else ["drops", "remembered", "calls", "slow", "fair", "memory"]
            )
            for name in wanted:
                print(f"-- {name}", flush=True)
                await getattr(self, name)()
        finally:
            await self.world.close()
            model.kill()
            model.wait()
        print()
        for figure in self.figures:
            print(figure.line())
        return 0 if all(figure.holds for figure in self.figures) else 1

    # -- scenarios

    async def drops(self) -> None:
        """Drops that need no model, half of them found by the signature, half by decoding; 200 sources."""
        sources = await self._sources(100, "github", secrets=["secret"])
        plain = await self._sources(100)
        bodies = [b"null" + b" " * 2044] * 1
        runs = [
            await self._work_off(self.options.drops, [*sources, *plain], lambda _: bodies[0])
            for _ in range(self._rounds)
        ]
        self._add("drops/s, no model, ledger rows included", [run.per_second for run in runs], "1/s", floor=4000)
        self._add("  CPU of the matcher a drop", [run.cpu for run in runs], "ms")

    async def remembered(self) -> None:
        """The verdict is in Redis: the same payload under another delivery id."""
        sources = await self._sources(200, "github")
        body = self._body("remembered")
        ids = iter(range(10**9))

        def http() -> dict[str, str]:
            return {"x-github-delivery": f"d-{next(ids)}", "x-github-event": "push"}

        await self._work_off(len(sources) * 2, sources, lambda _: body, http=http)
        runs = [
            await self._work_off(self.options.remembered, sources, lambda _: body, http=http)
            for _ in range(self._rounds)
        ]
        self._add("decisions/s, verdict remembered", [run.per_second for run in runs], "1/s", floor=1000)
        self._add("  CPU of the matcher a decision", [run.cpu for run in runs], "ms")

    async def calls(self) -> None:
        """Beside the bare client, in pairs."""
        sources = await self._sources(50)
        ratios, ours, theirs, cpus = [], [], [], []
        for turn in range(self._rounds):
            count = self.options.calls
            run = await self._work_off(count, sources, lambda number, turn=turn: self._body(f"{turn}-{number}"))
            command = [sys.executable, str(HERE / "bare.py"), f"{self.url}/v1", "32", "5", "3300"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
            bare, cpu = map(float, done.stdout.split())
            ratios.append(run.per_second / bare)
            ours.append(run.per_second)
            theirs.append(bare)
            cpus.append(run.cpu / cpu)
        self._add("model calls/s of the matcher / bare openai client", ratios, "ratio", floor=0.7)
        self._add("  model calls/s of the matcher, ledger rows included", ours, "1/s")
        self._add("  calls/s of the bare openai client", theirs, "1/s")
        self._add("  CPU of a decision / CPU of a bare call", cpus, "ratio")

    async def slow(self) -> None:
        """A model of 500 ms and 64 calls in flight: ideal is 128 a second."""
        await self._delay(0.5)
        sources = await self._sources(50)
        run = await self._work_off(
            1500, sources, lambda number: self._body(f"slow-{number}"), ROOM_LLM__CONCURRENCY="64"
        )
        await self._delay(0)
        self._add("share of the ideal, 500 ms a call, 64 in flight", [run.per_second / 128], "ratio", floor=0.8)

    async def fair(self) -> None:
        """One source sends 100 a second, each a prompt of 2 s, beside 20 quiet sources in the same partition."""
        quiet = await self._sources(20)
        ratios, without, beside = [], [], []
        service = await self._start()
        try:
            for _ in range(self.options.pairs):
                alone = await self._quiet(quiet, flood=False)
                flooded = await self._quiet(quiet, flood=True)
                without.append(alone * 1000)
                beside.append(flooded * 1000)
                ratios.append(flooded / alone)
        finally:
            await asyncio.to_thread(service.stop)
        self._add("p99 of 20 quiet sources beside a flood / without", ratios, "ratio", ceiling=1.5)
        self._add("  p99 without", without, "ms")
        self._add("  p99 beside", beside, "ms")

    async def memory(self) -> None:
        """A backlog waits when the matcher starts."""
        sources = await self._sources(200)
        run = await self._work_off(self.options.backlog, sources, lambda number: b"null" + b" " * 2044)
        self._add(
            f"peak memory with a backlog of {self.options.backlog:,} records of 2 KiB", [run.peak], "MiB", ceiling=250
        )
        self._add("  growth from a fifth of it to its end", [run.growth], "MiB", ceiling=40)

    # -- parts of scenarios

    async def _quiet(self, quiet: Sequence[SeededSource], *, flood: bool) -> float:
        """The p99, in seconds, from receipt to decision of quiet sources' events: two a second each for 15 s."""
        loud: list[SeededSource] = []
        await self._delay(0.05)
        if flood:
            loud = await self._sources(1)
            await self._delay(2.0, "LOUD")
            await self._flood(loud, 400)
        began = time.time()
        ids = []
        for turn in range(30):
            if flood:
                await self._flood(loud, 50)
            ids += await self._send(
                len(quiet), quiet, lambda number, turn=turn: self._body(f"q {turn} {new_id()}"), partition=0
            )
            await asyncio.sleep(max(0.0, began + (turn + 1) / 2 - time.time()))
        await self._decided(ids)
        rows = await self.world.query(
            "select extract(epoch from decided_at - received_at)::float8 as age from webhook_deliveries"
            " where id = any(%s) order by 1",
            ids,
        )
        for source in loud:
            await self.world.query("update event_sources set enabled = false where id = %s", source.id)
            await self._delay(0)
            await self._all_decided(source, 400 + 30 * 50)
        ages = [float(row["age"]) for row in rows]
        return ages[int(len(ages) * 0.99)]

    async def _flood(self, loud: Sequence[SeededSource], count: int) -> None:
        await self._send(count, loud, lambda number: self._body(f"LOUD {number} {new_id()}"), partition=0)

    async def _work_off(self, count: int, sources: Sequence[SeededSource], body, *, http=None, **env: str) -> Run:  # type: ignore[no-untyped-def]
        """Send ``count`` records, then start a matcher and watch it until all are decided."""
        await self._send(count, sources, body, http=http)
        service = await self._start(**env)
        try:
            return await self._watch(service, count)
        finally:
            await asyncio.to_thread(service.stop)

    async def _watch(self, service: ServiceProcess, count: int) -> Run:
        assert service.pid is not None
        process = psutil.Process(service.pid)
        first: tuple[float, int, float] | None = None
        last = (time.monotonic(), 0, 0.0)
        peak = early = 0.0
        while last[1] < count:
            await asyncio.sleep(0.5)  # reading the counters costs the matcher some 20 ms each time
            times = process.cpu_times()
            last = (
                time.monotonic(),
                await asyncio.to_thread(_outcomes, service.operations_port),
                times.user + times.system,
            )
            memory = process.memory_info().rss / 2**20
            peak = max(peak, memory)
            if last[1] >= count // 5 and not early:
                early = memory
            if last[1] >= count // 10 and first is None:
                first = last
            if last[1] < 0.95 * count:
                end = last
        assert first is not None
        if end[1] <= first[1]:
            end = last
        rate = (end[1] - first[1]) / (end[0] - first[0])
        run = Run(rate, (end[2] - first[2]) / (end[1] - first[1]) * 1000, peak, peak - early)
        print(f"   {rate:,.0f}/s, {run.cpu:.3f} ms of CPU each, peak {peak:.0f} MiB", flush=True)
        return run

    async def _start(self, **env: str) -> ServiceProcess:
        self.number += 1
        settings = self.world.environment(
            f"{self.url}/v1", ROOM_REDIS__URL=self.parts.redis_url(), ROOM_LOG__LEVEL="warning", **env
        )
        service = ServiceProcess("room_matcher", settings, self.folder, number=self.number)
        await asyncio.to_thread(service.launch)
        await asyncio.to_thread(service.wait_ready)
        return service

    async def _sources(self, count: int, kind: str = "generic", secrets: Sequence[str] = ()) -> list[SeededSource]:
        instance = await self.world.instance(budget=None)
        return [await self.world.source(instance, kind, secrets=secrets, criteria=["nothing"]) for _ in range(count)]

    async def _send(self, count: int, sources: Sequence[SeededSource], body, *, http=None, partition=None):  # type: ignore[no-untyped-def]
        producer = AIOKafkaProducer(
            bootstrap_servers=self.world.bootstrap, acks="all", max_batch_size=262_144, linger_ms=5
        )
        await producer.start()
        ids = []
        try:
            for number in range(count):
                source = sources[number % len(sources)]
                envelope = Envelope(
                    id=new_id(),
                    token_sha256=source.digest,
                    received_at_us=time.time_ns() // 1000,
                    content_type="application/json",
                    http=http() if http else {},
                )
                ids.append(envelope.id)
                await producer.send(
                    WEBHOOKS_RAW,
                    body(number),
                    key=record_key(source.digest),
                    headers=list(encode(envelope)),
                    partition=partition,
                )
                if number % 500 == 499:  # as ingest: what waits for long before it is appended looks like an overflow
                    await producer.flush()
            await producer.flush()
        finally:
            await producer.stop()
        return ids

    async def _decided(self, ids: Sequence[object]) -> None:
        while True:
            (row,) = await self.world.query(
                "select count(*)::int as n from webhook_deliveries where id = any(%s)", list(ids)
            )
            if row["n"] >= len(ids):
                return
            await asyncio.sleep(0.2)

    async def _all_decided(self, source: SeededSource, count: int) -> None:
        while True:
            (row,) = await self.world.query(
                "select count(*)::int as n from webhook_deliveries where source_id = %s", source.id
            )
            if row["n"] >= count:
                return
            await asyncio.sleep(0.2)

    async def _delay(self, seconds: float, when: str = "") -> None:
        body = json.dumps({"seconds": seconds, "when": when}).encode()
        request = urllib.request.Request(f"{self.url}/delay", body, method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=5).read())

    async def _answers(self) -> None:
        for _ in range(100):
            try:
                await self._delay(0)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                return
        raise SystemExit("the model does not answer")

    @property
    def _rounds(self) -> int:
        return int(self.options.rounds)

    @staticmethod
    def _body(unique: str) -> bytes:
        return f'{{"unique":"{unique}",{FILLER}"end":1}}'.encode()

    def _add(
        self, name: str, values: Sequence[float], unit: str, floor: float | None = None, ceiling: float | None = None
    ) -> None:
        spread = f" ({min(values):,.2f}-{max(values):,.2f})" if len(values) > 1 else ""
        self.figures.append(Figure(f"{name}{spread}", statistics.median(values), unit, floor, ceiling))
        print(self.figures[-1].line(), flush=True)


def _outcomes(port: int) -> int:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("room_outcomes_total{")))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenarios, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5, help="runs with and without a flood")
    parser.add_argument("--drops", type=int, default=40_000)
    parser.add_argument("--remembered", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1_500)
    parser.add_argument("--backlog", type=int, default=50_000)
    options = parser.parse_args()
    parts = Parts(choose(os.environ, available))
    print(f"parts: {parts.choice.describe()}", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="room-bench-") as folder:
            return asyncio.run(Bench(options, parts, Path(folder)).run())
    finally:
        parts.close()


if __name__ == "__main__":
    sys.exit(main())
