"""The servers that are measured: how each is started, and on what."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from room_common.contracts.topics import WEBHOOKS_RAW
from room_local.parts.addresses import free_port

HERE = Path(__file__).parent
INGEST, TWO, FASTAPI = "room-ingest", "room-ingest, 2 processes", "FastAPI + aiokafka"
GO, BENTHOS = "Go net/http + franz-go", "Benthos core + franz-go"
GO_PROGRAMS = {GO: "direct", BENTHOS: "benthos"}


@dataclass
class Running:
    """A server that answers. CPU and memory are of all its processes together."""

    port: int
    processes: list[psutil.Process]

    def cpu(self) -> float:
        """Seconds used so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    def memory(self) -> float:
        """Resident MiB."""
        return sum(process.memory_info().rss for process in self.processes) / 2**20


@dataclass
class Servers:
    """Starts any of them on one broker. ``kafka`` are ingest's settings for it, ``bootstrap`` its plain listener."""

    bootstrap: str
    kafka: Mapping[str, str]
    token_key: str
    folder: Path

    def build_go(self, names: Sequence[str]) -> None:
        """Compile the Go programs; the first time their modules are fetched."""
        for name in names:
            program = GO_PROGRAMS[name]
            subprocess.run(["go", "build", "-o", self.folder / program, "."], cwd=HERE / "go" / program, check=True)

    @contextmanager
    def serving(self, name: str) -> Iterator[Running]:
        """The server ``name`` until the block ends."""
        port = free_port()
        count = 2 if name == TWO else 1
        operations = [free_port() for _ in range(count)]
        processes = [
            subprocess.Popen(self._command(name, port), env=self._environment(name, port, own)) for own in operations
        ]
        try:
            for process, own in zip(processes, operations, strict=True):
                _wait(self._ready(name, port, own), process)
            yield Running(port, [psutil.Process(process.pid) for process in processes])
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _command(self, name: str, port: int) -> list[str]:
        if name in (INGEST, TWO):
            return [sys.executable, "-m", "room_ingest"]
        if name == GO:
            where = ["-listen", f"127.0.0.1:{port}", "-brokers", self.bootstrap, "-topic", WEBHOOKS_RAW]
            return [str(self.folder / "direct"), *where]
        if name == BENTHOS:
            return [str(self.folder / "benthos"), "run", str(HERE / "go" / "benthos" / "config.yaml")]
        options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
        where = ["--app-dir", str(HERE), "--host", "127.0.0.1", "--port", str(port)]
        return [sys.executable, "-m", "uvicorn", *where, *options, "peer:app"]

    def _environment(self, name: str, port: int, operations: int) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("ROOM_")}
        if name not in (INGEST, TWO):
            listen = {"LISTEN": f"127.0.0.1:{port}", "BROKERS": self.bootstrap}
            return env | listen | {"BOOTSTRAP": self.bootstrap, "TOPIC": WEBHOOKS_RAW}
        return env | {
            **self.kafka,
            "ROOM_TOKEN_KEYS": f"bench:{self.token_key}",
            "ROOM_INGEST__HOST": "127.0.0.1",
            "ROOM_INGEST__PORT": str(port),
            "ROOM_INGEST__REUSE_PORT": str(name == TWO).lower(),
            "ROOM_OPERATIONS__HOST": "127.0.0.1",
            "ROOM_OPERATIONS__PORT": str(operations),
            "ROOM_LOG__LEVEL": "warning",
            # The others wait as long as it takes; on a busy machine 1.5 s are over now and then.
            "ROOM_INGEST__ACKNOWLEDGE_SECONDS": "20",
        }

    def _ready(self, name: str, port: int, operations: int) -> str:
        if name in (INGEST, TWO):
            return f"http://127.0.0.1:{operations}/readyz"
        return f"http://127.0.0.1:{port}/webhooks/{'0' * 64}"


def go_missing() -> str | None:
    """Why the Go programs can't be built here, or None."""
    return None if shutil.which("go") else "there is no go"


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"a server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except urllib.error.HTTPError as error:
            if error.code == 405:  # it is there, and wants a POST
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")
