"""Who is stopped before whom, and how long each may take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_local.parts.server import Server
from room_local.services import SERVICES, ServiceSpec
from room_local.state import ProcessRecord, StackRecord
from room_local.supervisor import Kind, Supervisor, Watched


class Fake(Server):
    """Notes when it was asked to stop; ``deaf`` ones stay until they are killed."""

    stop_timeout = 0.0

    def __init__(self, name: str, noted: list[str], *, deaf: bool = False) -> None:
        super().__init__(Path("/nowhere"), Path("/nowhere/log"))
        self.name = name
        self._noted = noted
        self._deaf = deaf
        self._runs = False

    @property
    def pid(self) -> int | None:
        return os.getpid() if self._runs else None

    def command(self) -> Sequence[str]:
        return ()

    def answers(self) -> bool:
        return self._runs

    def launch(self) -> None:
        self._runs = True

    def terminate(self) -> None:
        self._noted.append(f"stop {self.name}")
        self._runs = self._deaf

    def kill(self) -> None:
        if self._runs:
            self._noted.append(f"kill {self.name}")
            self._runs = False

    def stop(self) -> None:
        self.terminate()


@dataclass
class Course:
    noted: list[str]
    said: list[str]


def stopped(*servers: tuple[str, Kind, bool]) -> Course:
    course = Course([], [])
    supervisor = Supervisor(lambda event: course.said.append(f"{event.subject}: {event.message}"), lambda: None)
    for name, kind, deaf in servers:
        supervisor.add(Watched(Fake(name, course.noted, deaf=deaf), kind))
    supervisor.stop()
    return course


def test_users_stop_before_what_they_use() -> None:
    course = stopped(
        ("postgres", "part", False),
        ("redis", "part", False),
        ("kafka", "part", False),
        ("rehearsal", "stand-in", False),
        ("matcher", "service", False),
        ("inbox", "stand-in", False),
        ("room-runner", "service", False),
    )
    assert set(course.noted[:2]) == {"stop matcher", "stop room-runner"}
    assert set(course.noted[2:4]) == {"stop rehearsal", "stop inbox"}
    assert course.noted[4:] == ["stop kafka", "stop redis", "stop postgres"]


def test_what_a_service_uses_stays_until_the_service_is_gone() -> None:
    course = stopped(("kafka", "part", False), ("rehearsal", "stand-in", False), ("room-runner", "service", True))
    assert course.noted == ["stop room-runner", "kill room-runner", "stop rehearsal", "stop kafka"]
    assert any("room-runner: finishes what it has in hand" in line for line in course.said)
    assert any("was killed" in line for line in course.said)


def test_only_what_plays_the_outside_is_a_stand_in() -> None:
    assert {spec.name for spec in SERVICES if spec.kind == "stand-in"} == {"rehearsal", "inbox"}


@given(st.floats(0, 600))
def test_nobody_is_killed_before_its_own_drain_is_over(seconds: float) -> None:
    spec = next(one for one in SERVICES if one.name == "room-runner")
    assert spec.stop_seconds({"ROOM_RUNNER__DRAIN_SECONDS": repr(seconds)}) >= seconds + 30


@pytest.mark.parametrize("wrong", ["", "soon", "nan"])
def test_a_drain_that_is_no_number_counts_as_not_given(wrong: str) -> None:
    spec = ServiceSpec("x", "x", drain_variable="X", drain_seconds=10)
    assert spec.stop_seconds({"X": wrong}) == spec.stop_seconds({})


def test_a_supervisor_may_take_as_long_as_all_it_stops() -> None:
    one = ProcessRecord("a", "service", "ready", None, None, 0, "/log", stop_seconds=90)
    processes = (
        one,
        replace(one, name="b", stop_seconds=60),
        replace(one, name="c", kind="stand-in", stop_seconds=10),
        replace(one, name="d", kind="part", stop_seconds=15),
        replace(one, name="e", kind="part", stop_seconds=20),
    )
    record = StackRecord("running", 1, 1.0, "embedded", "rehearsal", "/token", processes=processes)
    assert record.stop_seconds == 90 + 10 + 15 + 20
