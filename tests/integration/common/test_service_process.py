"""A service as a process: signals and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SERVICE = """
import asyncio, sys, time
from room_common.errors import DependencyUnavailable
from room_common.service import Loop, Part, run_service
from room_common.settings import ServiceSettings, load_settings

class Probe(Loop):
    name = "probe"
    async def start(self):
        if MODE == "away":
            raise DependencyUnavailable("kafka", "connect")
        await super().start()
    async def run(self):
        print("RUNNING", flush=True)
        if MODE == "crash":
            raise ValueError("postgresql://u:verysecret@h/d")
        while await self.pause(60):
            pass
    async def stop(self):
        if MODE == "block":
            print("BLOCKED", flush=True)
            time.sleep(600)
        if MODE == "hang":
            await asyncio.Event().wait()
        await super().stop()
        print("DRAINED", flush=True)

MODE = sys.argv[1]
run_service("probe", load_settings(ServiceSettings), lambda context: [Probe()])
"""


class Process:
    """The service, its output in a file."""

    def __init__(self, folder: Path, mode: str, **env: str) -> None:
        script = folder / "service.py"
        script.write_text(SERVICE)
        self.out = folder / "out"
        environ = {**os.environ, "ROOM_OPERATIONS__HOST": "127.0.0.1", "ROOM_OPERATIONS__PORT": "0", **env}
        with self.out.open("wb") as out:
            self.child = subprocess.Popen([sys.executable, str(script), mode], stdout=out, stderr=out, env=environ)

    def text(self) -> str:
        return self.out.read_text()

    def until(self, needle: str) -> None:
        deadline = time.monotonic() + 30
        while needle not in self.text():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def code(self) -> int:
        return self.child.wait(30)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(mode: str, **env: str) -> Process:
        started.append(Process(tmp_path, mode, **env))
        return started[-1]

    yield start
    for process in started:
        process.child.kill()
        process.child.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_with_0(launch: Callable[..., Process], number: signal.Signals) -> None:
    process = launch("ok")
    process.until('"started"')
    process.child.send_signal(number)
    assert process.code() == 0
    assert "DRAINED" in process.text()


def test_a_signal_ends_the_wait_for_a_dependency(launch: Callable[..., Process]) -> None:
    process = launch("away")
    process.until("kafka: connect")
    process.child.send_signal(signal.SIGTERM)
    assert process.code() == 0


def test_a_crash_exits_with_1_and_says_nothing_secret(launch: Callable[..., Process]) -> None:
    process = launch("crash")
    assert process.code() == 1
    assert "ValueError" in process.text()
    assert "verysecret" not in process.text()


def test_a_wrong_setting_exits_with_2(launch: Callable[..., Process]) -> None:
    process = launch("ok", ROOM_OPERATIONS__PORT="none")
    assert process.code() == 2
    assert "ROOM_OPERATIONS__PORT" in process.text()


def test_a_second_signal_exits_at_once(launch: Callable[..., Process]) -> None:
    process = launch("hang")
    process.until('"started"')
    process.child.send_signal(signal.SIGTERM)
    process.until('"stopping"')
    process.child.send_signal(signal.SIGTERM)
    assert process.code() == 128 + signal.SIGTERM


def test_a_second_signal_is_heard_by_a_blocked_loop(launch: Callable[..., Process]) -> None:
    process = launch("block")
    process.until('"started"')
    process.child.send_signal(signal.SIGTERM)
    process.until("BLOCKED")
    process.child.send_signal(signal.SIGTERM)
    assert process.code() == 128 + signal.SIGTERM
