"""Requests per second of ingest beside FastAPI + aiokafka, on one broker, each one a process.

Every 200 is checked against the topic: the sum of its end offsets grows by exactly as many. Prints a table, then the
ratios; exits 1 when a record is missing, an answer is not 200, or ingest is not ``--at-least`` times as fast.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW, topic
from room_common.domain.tokens import TokenKeys, make_token
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_local.parts.addresses import free_port
from room_local.parts.kafka_jars import available
from room_testing.parts import Parts, choose

HERE = Path(__file__).parent
INGEST, PEER = "room-ingest", "FastAPI + aiokafka"


@dataclass(frozen=True)
class Window:
    """One measured window. CPU in milliseconds per request, memory in MiB."""

    per_second: float
    p50: float
    p99: float
    cpu: float
    memory: float


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="length of a measured window")
    parser.add_argument("--warm", type=float, default=2, help="seconds of load before it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="32,256")
    parser.add_argument("--bytes", type=int, default=2048, help="size of a body")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--at-least", type=float, default=3, help="times as fast as the peer, at every concurrency")
    options = parser.parse_args()
    parts = Parts(choose(os.environ, available))
    print(f"broker: {parts.choice.describe()}", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="room-bench-") as folder:
            return Bench(options, parts.kafka_bootstrap(), parts.choice.kafka != "wheels", Path(folder)).run()
    finally:
        parts.close()


class Bench:
    """One run of the comparison."""

    def __init__(self, options: argparse.Namespace, bootstrap: str, idempotence: bool, folder: Path) -> None:
        self.options = options
        self.bootstrap = bootstrap
        self.idempotence = idempotence
        self.folder = folder
        self.load = folder / "load"
        self.tokens = folder / "tokens"
        self.key = secrets.token_hex(32)
        self.faults: list[str] = []

    def run(self) -> int:
        """The exit code."""
        options = self.options
        subprocess.run(["cc", "-O2", "-Wall", "-o", self.load, HERE / "load.c"], check=True)
        keys = TokenKeys((bytes.fromhex(self.key),))
        made = (make_token(keys, secrets.token_bytes(24)) for _ in range(options.tokens))
        self.tokens.write_text("\n".join(made))
        settings = KafkaSettings(
            bootstrap_servers=self.bootstrap,
            idempotence=self.idempotence,
            replication_factor=1,
            min_insync_replicas=1,
        )
        asyncio.run(create_topics(settings, [topic(WEBHOOKS_RAW), topic(REPLIES_RAW)]))
        windows: dict[tuple[str, int], list[Window]] = {}
        concurrencies = [int(count) for count in options.connections.split(",")]
        for turn in range(options.rounds + 1):  # the first one warms the broker up and is not counted
            for name in random.sample([INGEST, PEER], 2):
                with self._serving(name) as (port, process):
                    for count in concurrencies:
                        window = self._window(name, port, count, process)
                        if turn:
                            windows.setdefault((name, count), []).append(window)
        return self._judge(windows, concurrencies)

    @contextmanager
    def _serving(self, name: str) -> Iterator[tuple[int, psutil.Process]]:
        port, operations = free_port(), free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith("ROOM_")}
        if name == INGEST:
            command = [sys.executable, "-m", "room_ingest"]
            env |= {
                "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
                "ROOM_KAFKA__IDEMPOTENCE": str(self.idempotence).lower(),
                "ROOM_TOKEN_KEYS": f"bench:{self.key}",
                "ROOM_INGEST__HOST": "127.0.0.1",
                "ROOM_INGEST__PORT": str(port),
                "ROOM_OPERATIONS__HOST": "127.0.0.1",
                "ROOM_OPERATIONS__PORT": str(operations),
                "ROOM_LOG__LEVEL": "warning",
            }
            ready = f"http://127.0.0.1:{operations}/readyz"
        else:
            command = [
                sys.executable,
                "-m",
                "uvicorn",
                "--app-dir",
                str(HERE),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ]
            command += [
                "--loop",
                "uvloop",
                "--http",
                "httptools",
                "--no-access-log",
                "--log-level",
                "warning",
                "peer:app",
            ]
            env |= {"BOOTSTRAP": self.bootstrap, "TOPIC": WEBHOOKS_RAW}
            ready = f"http://127.0.0.1:{port}/docs"
        process = subprocess.Popen(command, env=env)
        try:
            _wait(ready, process)
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()

    def _window(self, name: str, port: int, count: int, process: psutil.Process) -> Window:
        before = asyncio.run(_end_offsets(self.bootstrap))
        options = self.options
        numbers = (port, count, options.warm, options.seconds, options.bytes)
        command = [str(self.load), *map(str, numbers), str(self.tokens)]
        cpu = memory = 0.0
        result = {"ok": 0, "other": 0, "broken": 0, "unanswered": 0, "per_second": 0.0, "p50": 0.0, "p99": 0.0}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            assert load.stdout is not None
            for line in load.stdout:
                if line.startswith("begin"):
                    cpu = -_cpu(process)
                elif line.startswith("end"):
                    cpu += _cpu(process)
                    memory = process.memory_info().rss / 2**20
                else:
                    result = json.loads(line)
        grown = asyncio.run(_end_offsets(self.bootstrap)) - before
        if grown != result["ok"] or result["other"] or result["broken"] or result["unanswered"]:
            self.faults.append(f"{name}, {count} connections: {grown} records for {result}")
        requests = max(1.0, result["per_second"] * options.seconds)
        return Window(result["per_second"], result["p50"], result["p99"], cpu / requests * 1000, memory)

    def _judge(self, windows: dict[tuple[str, int], list[Window]], concurrencies: list[int]) -> int:
        print("\n| server | connections | requests/s (range) | p50 ms | p99 ms | CPU ms/request | RSS MiB |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for (name, count), runs in sorted(windows.items(), key=lambda item: (item[0][1], item[0][0])):
            speeds = sorted(run.per_second for run in runs)
            median = [statistics.median(values) for values in zip(*map(_figures, runs), strict=True)]
            print(
                f"| {name} | {count} | {median[0]:,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f}) | {median[1]:.1f} "
                f"| {median[2]:.1f} | {median[3]:.3f} | {median[4]:.0f} |"
            )
        ratios = {}
        for count in concurrencies:
            pairs = zip(windows[INGEST, count], windows[PEER, count], strict=True)
            ratios[count] = statistics.median(ours.per_second / theirs.per_second for ours, theirs in pairs)
        for fault in self.faults:
            print(f"WRONG {fault}")
        if not self.faults:
            print("\nevery answer was 200, and the topic grew by exactly as many records")
        text = ", ".join(f"{ratio:.1f} at {count} connections" for count, ratio in ratios.items())
        print(f"ingest / FastAPI + aiokafka (median of ratios within a round): {text}")
        return 1 if self.faults or min(ratios.values()) < self.options.at_least else 0


def _figures(window: Window) -> tuple[float, ...]:
    return window.per_second, window.p50, window.p99, window.cpu, window.memory


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"a server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


async def _end_offsets(bootstrap: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        await consumer._client.force_metadata_update()
        partitions = await consumer._client._wait_on_metadata(WEBHOOKS_RAW)
        ends = await consumer.end_offsets([TopicPartition(WEBHOOKS_RAW, index) for index in partitions])
        return sum(ends.values())


if __name__ == "__main__":
    sys.exit(main())
