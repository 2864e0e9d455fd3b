"""What a supervisor that was killed left behind, where the kernel did not end it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from room_local.files import StackFiles
from room_local.parts.processes import started_at
from room_local.state import ProcessRecord, StackRecord, save
from room_local.status import status, take_down


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def remember(folder: Path, pid: int, started: float) -> None:
    files = StackFiles(folder)
    files.prepare()
    process = ProcessRecord("matcher", "service", "ready", pid, started, 0, "/log")
    # A supervisor that can't be alive: pid 1 with a start long ago.
    save(files, StackRecord("running", 1, 1.0, "embedded", "rehearsal", "/token", processes=(process,)))


def test_what_was_left_is_shown_and_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    remember(tmp_path, sleeper.pid, started_at(sleeper.pid) or 0)
    assert status(tmp_path).state == "abandoned"
    assert take_down(tmp_path) == ["matcher"]
    assert started_at(sleeper.pid) is None
    assert status(tmp_path).state == "stopped"


@pytest.mark.parametrize("correction", [-5.0, -1.0, 1.0, 5.0])
def test_a_clock_that_is_corrected_hides_nothing(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], correction: float
) -> None:
    remember(tmp_path, sleeper.pid, (started_at(sleeper.pid) or 0) + correction)
    assert status(tmp_path).state == "abandoned"
    assert take_down(tmp_path) == ["matcher"]


def test_a_pid_that_now_belongs_to_another_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    remember(tmp_path, sleeper.pid, time.time() - 86_400)
    assert status(tmp_path).state == "stopped"
    assert take_down(tmp_path) == []
    assert sleeper.poll() is None
