"""The embedded stack with real parts; its services are stand-ins that only answer /readyz."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from room_common.contracts.topics import TOPICS
from room_common.errors import ConfigurationError
from room_local import supervisor
from room_local.events import Event
from room_local.files import StackFiles
from room_local.options import StackOptions
from room_local.parts.addresses import free_port
from room_local.parts.processes import PartFailed, started_at, wait_until
from room_local.services import ServiceSpec
from room_local.stack import Stack
from room_local.state import load
from room_local.status import StackStatus, status, take_down
from room_testing.standin_stack import STANDINS

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

Make = Callable[..., SimpleNamespace]


@pytest.fixture
def make(server_folder: Path) -> Iterator[Make]:
    """Stacks with their events; whatever happens, nothing runs afterwards."""
    stacks: list[Stack] = []

    def build(
        services: tuple[ServiceSpec, ...] = STANDINS, environment: dict[str, str] | None = None, **options: object
    ) -> SimpleNamespace:
        events: list[Event] = []
        chosen = {"ingest_port": free_port(), "operations_port": free_port(), "admin_port": free_port()} | options
        stack = Stack(
            server_folder,
            StackOptions(**chosen),  # type: ignore[arg-type]
            events.append,
            services=services,
            environment={**os.environ, **(environment or {})},
        )
        stacks.append(stack)
        return SimpleNamespace(stack=stack, events=events)

    yield build
    for stack in stacks:
        stack.down()
    take_down(server_folder)


def pids(found: StackStatus) -> dict[str, int]:
    return {one.name: one.pid for one in found.processes if one.pid is not None}


def none_runs(of: dict[str, int]) -> bool:
    return wait_until(lambda: all(started_at(pid) is None for pid in of.values()), timeout=30)


def said(events: list[Event], kind: str, subject: str, words: str = "") -> bool:
    return any((one.kind, one.subject) == (kind, subject) and words in one.message for one in events)


def test_everything_is_ready_then_nothing_is_left(make: Make, server_folder: Path) -> None:
    made = make()
    made.stack.up()
    found = status(server_folder)
    running = pids(found)
    assert found.state == "running"
    assert set(running) == {"postgres", "redis", "kafka", "ingest", "matcher", "admin"}
    assert all(one.ready is not False and one.memory_bytes for one in found.processes)
    assert json.loads(json.dumps(found.as_json()))["urls"]["admin"].startswith("http://127.0.0.1:")
    assert said(made.events, "note", "kafka", "in memory")
    sourced = subprocess.run(
        ["sh", "-c", '. "$1"/.room/env && cat "$ROOM_API_TOKEN_FILE" && env', "sh", server_folder],
        capture_output=True,
        timeout=10,
    ).stdout.decode()
    assert f"ROOM_API_URL={found.urls['admin']}" in sourced
    made.stack.down()
    assert none_runs(running)
    assert status(server_folder).state == "stopped"
    assert not (server_folder / ".room" / "env").exists()


def test_the_parts_are_prepared(make: Make) -> None:
    made = make()
    made.stack.up()
    with psycopg.connect(made.stack.addresses.database) as connection:
        assert connection.execute("select to_regclass('event_backlog') is not null").fetchone() == (True,)
    assert topics(made.stack.addresses.kafka) >= {one.name for one in TOPICS}


def test_what_died_is_started_again_and_said(make: Make, server_folder: Path) -> None:
    made = make()
    made.stack.up()
    before = pids(status(server_folder))
    for name in ("matcher", "postgres", "kafka"):
        os.kill(before[name], signal.SIGKILL)

    def whole() -> bool:
        found = status(server_folder)
        restarted = [one for one in found.processes if one.restarts == 1 and one.state == "ready"]
        return {one.name for one in restarted} == {"matcher", "postgres", "kafka"}

    assert wait_until(whole, timeout=40)
    assert said(made.events, "restarting", "matcher", "killed by signal 9")
    assert topics(made.stack.addresses.kafka) >= {one.name for one in TOPICS}


def test_data_survives_but_for_kafkas(make: Make) -> None:
    first = make().stack
    first.up()
    with psycopg.connect(first.addresses.database) as connection:
        connection.execute("create table kept ()")
    first.down()
    second = make().stack
    second.up()
    with psycopg.connect(second.addresses.database) as connection:
        assert connection.execute("select to_regclass('kept') is not null").fetchone() == (True,)


def test_a_second_stack_in_the_same_folder_is_refused(make: Make) -> None:
    make().stack.up()
    with pytest.raises(ConfigurationError, match="already runs"):
        make().stack.up()


def test_a_taken_port_is_replaced_and_said(make: Make, server_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = make(ingest_port=port)
        made.stack.up()
    assert said(made.events, "warning", "ingest", f"port {port} is taken")
    assert made.stack.addresses.ports["ingest"] != port


def test_a_service_with_a_wrong_setting_ends_the_start(make: Make, server_folder: Path) -> None:
    with pytest.raises(PartFailed, match="did not start"):
        make(environment={"STANDIN": "exit:2"}).stack.up()
    found = status(server_folder)
    assert found.state == "failed"
    assert pids(found) == {}


def test_a_deaf_service_is_killed(make: Make, server_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("room_local.services.ServiceSpec.stop_seconds", lambda *_: 0.5)
    made = make(environment={"STANDIN": "deaf"})
    made.stack.up()
    running = pids(status(server_folder))
    made.stack.down()
    assert none_runs(running)
    assert said(made.events, "warning", "ingest", "was killed")


def test_a_grown_broker_is_restarted_after_a_warning(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_MEMORY_SECONDS", 0.5)
    made = make(broker_memory_limit=1)
    made.stack.up()
    assert wait_until(lambda: said(made.events, "warning", "kafka", "restarting it"), timeout=20)
    warning, restart = [one.message for one in made.events if (one.kind, one.subject) == ("warning", "kafka")][:2]
    assert "forgets all" in warning
    assert "restarting it" in restart


def run_room(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    ports = [f"--{name}-port={free_port()}" for name in ("ingest", "operations", "admin")]
    return subprocess.Popen(
        [sys.executable, "-m", "room_testing.standin_stack", "up", "-C", str(folder), *ports, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def started(folder: Path) -> set[str]:
    record = load(StackFiles(folder))
    return {one.name for one in record.processes if one.pid is not None} if record is not None else set()


def wait_or_explain(room: subprocess.Popen[bytes], check: Callable[[], bool]) -> None:
    wait_until(lambda: room.poll() is not None or check(), timeout=80)
    if not check():
        room.kill()
        pytest.fail(room.communicate(timeout=20)[0].decode())


def assert_running(room: subprocess.Popen[bytes], folder: Path) -> None:
    wait_or_explain(room, lambda: status(folder).state == "running")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_running(server_folder: Path, number: signal.Signals) -> None:
    with run_room(server_folder) as room:
        assert_running(room, server_folder)
        running = pids(status(server_folder))
        room.send_signal(number)
        output, _ = room.communicate(timeout=60)
    assert room.returncode == 0, output.decode()
    assert len(running) == 6
    assert none_runs(running)


@pytest.mark.parametrize("part", ["postgres", "kafka", "matcher"])
def test_a_signal_while_starting_leaves_nothing_running(server_folder: Path, part: str) -> None:
    with run_room(server_folder) as room:
        wait_or_explain(room, lambda: part in started(server_folder))
        family = {str(one.pid): one.pid for one in psutil.Process(room.pid).children(recursive=True)}
        room.send_signal(signal.SIGINT)
        output, _ = room.communicate(timeout=60)
    # CPython ends by the signal itself, after all handlers, if it arrived during an exec() of text, as imports do.
    assert room.returncode in (0, -signal.SIGINT), output.decode()
    assert b"nothing is left running" in output
    assert family
    assert none_runs(family)


def test_a_killed_supervisor_takes_all_with_it_and_the_next_start_is_clean(make: Make, server_folder: Path) -> None:
    with run_room(server_folder) as room:
        assert_running(room, server_folder)
        running = pids(status(server_folder))
        room.kill()
        room.communicate(timeout=60)
    assert sys.platform != "linux" or none_runs(running)
    take_down(server_folder)
    assert none_runs(running)
    assert status(server_folder).state == "stopped"
    make().stack.up()


def topics(bootstrap: str) -> set[str]:
    async def ask() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return set(await admin.list_topics())
        finally:
            await admin.close()

    return asyncio.run(ask())


def run_to_end(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "room_testing.standin_stack", *arguments, "-C", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def test_in_the_background_and_down_again(server_folder: Path) -> None:
    ports = [f"--{name}-port=0" for name in ("ingest", "operations", "admin")]
    up = run_to_end(server_folder, "up", "--detach", *ports)
    try:
        assert up.returncode == 0, up.stderr
        assert "room down" in up.stdout
        running = pids(status(server_folder))
        found = json.loads(run_to_end(server_folder, "status", "--json").stdout)
        assert found["state"] == "running"
        assert found["token_file"] == str(server_folder / ".room" / "operator-token")
        again = run_to_end(server_folder, "up", "--detach", *ports)
        assert again.returncode == 2
        assert "already runs" in again.stderr
        assert "ready" in run_to_end(server_folder, "logs", "stack").stdout
        assert "known: " in run_to_end(server_folder, "logs", "typo").stderr
    finally:
        down = run_to_end(server_folder, "down")
    assert "matcher" in down.stdout
    assert none_runs(running)
    assert run_to_end(server_folder, "status").returncode == 3
    assert "nothing was running" in run_to_end(server_folder, "down").stdout


def test_a_background_start_that_fails_says_why(server_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "exit:2")
    up = run_to_end(server_folder, "up", "--detach")
    assert up.returncode == 1
    assert "did not start" in up.stderr
    assert pids(status(server_folder)) == {}
