"""Each part of the embedded stack on its own: restarts, faults, and words for a start that fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import psycopg
import pytest
import redis

from room_local.parts.kafka_apache import ApacheKafka
from room_local.parts.kafka_tansu import TansuBroker
from room_local.parts.postgres import Postgres
from room_local.parts.processes import PartFailed, started_at, wait_until
from room_local.parts.redis import Redis
from room_local.parts.server import Server

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

PartT = TypeVar("PartT", bound=Server | ApacheKafka)
Track = Callable[[PartT], PartT]


@pytest.fixture
def track() -> Iterator[Track[Server | ApacheKafka]]:
    """Stops what a test started."""
    parts: list[Server | ApacheKafka] = []

    def remember(part: PartT) -> PartT:
        parts.append(part)
        return part

    yield remember
    for part in parts:
        part.stop()


def test_postgres_keeps_its_data_over_a_kill(server_folder: Path, track: Track[Postgres]) -> None:
    postgres = track(Postgres(server_folder / "pg", server_folder / "log", durable=False))
    postgres.start()
    assert postgres.create_database("room")
    assert not postgres.create_database("room")
    postgres.kill()
    assert not postgres.answers()
    assert postgres.exit_code == -signal.SIGKILL
    postgres.restart()
    assert not postgres.create_database("room")


def test_postgres_in_a_folder_too_deep_for_a_socket(server_folder: Path, track: Track[Postgres]) -> None:
    deep = server_folder / ("d" * 60) / ("e" * 60)
    postgres = track(Postgres(deep, server_folder / "log", durable=False))
    postgres.start()
    with psycopg.connect(postgres.dsn()) as connection:
        assert connection.execute("show max_connections").fetchone() == ("100",)
    assert postgres.socket_folder != postgres.data


def test_postgres_takes_its_data_back_from_an_earlier_server(server_folder: Path, track: Track[Postgres]) -> None:
    first = track(Postgres(server_folder / "pg", server_folder / "log", durable=False))
    first.start()
    second = track(Postgres(server_folder / "pg", server_folder / "log", durable=False))
    second.start()
    assert first.pid is None
    assert second.answers()


def test_postgres_starts_beside_a_pid_file_of_another_process(server_folder: Path, track: Track[Postgres]) -> None:
    postgres = track(Postgres(server_folder / "pg", server_folder / "log", durable=False))
    postgres.start()
    file = postgres.data / "postmaster.pid"
    content = file.read_text().splitlines()
    postgres.stop()
    file.write_text("\n".join([str(os.getpid()), *content[1:]]) + "\n")
    file.chmod(0o644)
    postgres.start()
    assert postgres.answers()


def test_a_failed_start_says_why(server_folder: Path, track: Track[Postgres]) -> None:
    postgres = track(Postgres(server_folder / "pg", server_folder / "log", durable=False))
    postgres.start()
    postgres.stop()
    (postgres.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(PartFailed, match="not compatible with this version"):
        postgres.start()
    assert postgres.pid is None


def test_redis_keeps_its_data_over_a_stop_and_freezes(server_folder: Path, track: Track[Redis]) -> None:
    server = track(Redis(server_folder / "redis", server_folder / "log"))
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
    server.restart()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"
    server.pause()
    assert not server.answers()
    server.resume()
    assert wait_until(server.answers, timeout=10)


def test_a_frozen_server_can_be_stopped(server_folder: Path, track: Track[Redis]) -> None:
    server = track(Redis(server_folder / "redis", server_folder / "log"))
    server.start()
    pid = server.pid
    assert pid is not None
    server.pause()
    server.stop()
    assert started_at(pid) is None


def test_the_embedded_broker_comes_back_at_its_address(server_folder: Path, track: Track[TansuBroker]) -> None:
    broker = track(TansuBroker(server_folder / "kafka", server_folder / "log"))
    broker.start()
    address = broker.bootstrap
    broker.kill()
    assert not broker.answers()
    broker.restart()
    assert broker.answers()
    assert broker.bootstrap == address
    assert broker.memory


@pytest.mark.apache
def test_apache_kafka_says_why_it_does_not_start(server_folder: Path, track: Track[ApacheKafka]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = track(ApacheKafka(server_folder / "kafka", server_folder / "logs", port=taken.getsockname()[1]))
        with pytest.raises(PartFailed, match="Address already in use"):
            broker.start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_what_was_started_dies_with_its_starter(server_folder: Path) -> None:
    program = (
        "import sys, time, pathlib; from room_local.parts.processes import spawn;"
        "print(spawn(['sleep', '600'], log=pathlib.Path(sys.argv[1])).pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(server_folder / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        child = int(starter.stdout.readline())
        assert wait_until(lambda: psutil.Process(child).name() == "sleep", timeout=10)
        starter.kill()
    assert wait_until(lambda: started_at(child) is None, timeout=10)
