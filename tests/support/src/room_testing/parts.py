"""Which Kafka, PostgreSQL and Redis the tests use, and starting them.

The order: addresses in the environment, containers where a Docker engine answers, Apache Kafka where Java and Maven are
there, else everything from wheels. PostgreSQL and Redis come from containers with Kafka, else from wheels, unless an
address is given. ``ROOM_TEST_PARTS=docker``, ``apache`` or ``wheels`` forces one.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from room_common.errors import ConfigurationError
from room_common.postgres.migrate import migrate
from room_local.parts.kafka_apache import ApacheKafka
from room_local.parts.kafka_tansu import TansuBroker
from room_local.parts.postgres import Postgres
from room_local.parts.processes import wait_until
from room_local.parts.redis import Redis
from room_local.parts.server import Server
from room_testing.containers import Containers, engine_missing

KafkaChoice = Literal["address", "docker", "apache", "wheels"]

_FORCED = ("docker", "apache", "wheels")


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why. An address is None where the part is started here."""

    kafka: KafkaChoice
    reason: str
    kafka_address: str | None = None
    database_address: str | None = None
    redis_address: str | None = None

    @property
    def starts_database(self) -> bool:
        """Whether PostgreSQL is a process that is started here, and can be stopped."""
        return self.database_address is None and self.kafka != "docker"

    def describe(self) -> str:
        """One line for the test header."""
        kafka = {
            "address": "at ROOM_TEST_KAFKA",
            "docker": "container",
            "apache": "Apache Kafka",
            "wheels": "Tansu (wheel)",
        }[self.kafka]
        other = "container" if self.kafka == "docker" else "wheel"
        database = "at ROOM_TEST_DATABASE" if self.database_address else other
        redis = "at ROOM_TEST_REDIS" if self.redis_address else other
        return f"kafka: {kafka}, postgresql: {database}, redis: {redis} ({self.reason})"


def choose(
    environment: Mapping[str, str],
    apache_missing: Callable[[], str | None],
    engine_missing: Callable[[], str | None] = engine_missing,
) -> Choice:
    """Pick the parts. ``apache_missing`` says what Apache Kafka lacks here, None when it can run; ``engine_missing``
    the same of containers.

    Raises :class:`ConfigurationError` for an unknown ``ROOM_TEST_PARTS`` or when what it forces can't run.
    """
    forced = environment.get("ROOM_TEST_PARTS") or None
    if forced is not None and forced not in _FORCED:
        raise ConfigurationError(f"ROOM_TEST_PARTS must be one of {', '.join(_FORCED)}, not {forced!r}")
    address = environment.get("ROOM_TEST_KAFKA") or None
    kafka, reason = _choose_kafka(forced, address, apache_missing, engine_missing)
    return Choice(
        kafka=kafka,
        reason=reason,
        kafka_address=address if kafka == "address" else None,
        database_address=environment.get("ROOM_TEST_DATABASE") or None,
        redis_address=environment.get("ROOM_TEST_REDIS") or None,
    )


def _choose_kafka(
    forced: str | None,
    address: str | None,
    apache_missing: Callable[[], str | None],
    engine_missing: Callable[[], str | None],
) -> tuple[KafkaChoice, str]:
    if forced == "wheels":
        return "wheels", "ROOM_TEST_PARTS=wheels"
    if forced is None and address is not None:
        return "address", "ROOM_TEST_KAFKA is set"
    if forced != "apache":
        engine = engine_missing()
        if engine is None:
            return "docker", "a Docker engine answers" if forced is None else "ROOM_TEST_PARTS=docker"
        if forced == "docker":
            raise ConfigurationError(f"ROOM_TEST_PARTS=docker, but {engine}")
    missing = apache_missing()
    if forced == "apache":
        if missing is not None:
            raise ConfigurationError(f"ROOM_TEST_PARTS=apache, but {missing}")
        return "apache", "ROOM_TEST_PARTS=apache"
    if missing is not None:
        return "wheels", missing
    return "apache", "Java and Maven are there"


class Broker:
    """The Kafka broker of a test run, with its faults. Counts nodes from 0.

    ``durable``: topics and committed offsets survive ``restart``. ``idempotence``: what producers may ask of it.
    """

    def __init__(self, server: ApacheKafka | TansuBroker) -> None:
        self._server = server
        self._members: Sequence[Server] = server.members if isinstance(server, ApacheKafka) else [server]
        self.bootstrap = server.bootstrap
        self.durable = server.durable
        self.nodes = server.nodes
        self.idempotence = server.durable

    def kill(self, node: int = 0) -> None:
        """``kill -9``."""
        self._members[node].kill()

    def restart(self, node: int = 0) -> None:
        """Start it again, stopping it first if it runs: same address, and with Apache Kafka the same data."""
        self._members[node].restart()

    def pause(self, node: int = 0) -> None:
        """Freeze it: connections stay open and nothing answers."""
        self._members[node].pause()

    def resume(self, node: int = 0) -> None:
        """End of ``pause``."""
        self._members[node].resume()

    def heal(self) -> None:
        """Undo whatever a test did: every node runs, answers and sees the others."""
        for member in self._members:
            member.resume()
            if member.pid is None:
                member.restart()
        if not wait_until(self._server.answers, timeout=60):
            raise RuntimeError(f"the broker at {self.bootstrap} did not come back")


class Parts:
    """The parts of one test run: each is started when a test first asks, all are stopped by :meth:`close`."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._folder: Path | None = None
        self._broker: Broker | None = None
        self._cluster: Broker | None = None
        self._stops: list[Callable[[], None]] = []
        self._containers = Containers()
        self._postgres: Postgres | None = None
        self._redis: Redis | None = None
        self._template: str | None = None
        self._numbers = itertools.count(1)

    @property
    def folder(self) -> Path:
        """A folder for data and logs, removed at the end. Short: unix sockets live in it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="room-test-"))
        return self._folder

    def kafka_bootstrap(self) -> str:
        """Where Kafka is."""
        if self.choice.kafka == "docker":
            return self._containers.kafka
        return self.choice.kafka_address or self.broker().bootstrap

    def broker(self) -> Broker:
        """The broker started here. Raises ``LookupError`` when it is somebody else's."""
        if self.choice.kafka == "address":
            raise LookupError("the broker at ROOM_TEST_KAFKA is not ours to stop")
        self._not_in_a_container()
        if self._broker is None:
            server: ApacheKafka | TansuBroker
            if self.choice.kafka == "apache":
                server = ApacheKafka(self.folder / "kafka", self.folder / "logs")
            else:
                server = TansuBroker(self.folder / "kafka", self.folder / "logs" / "kafka.log")
            self._stops.append(partial(_end, server))
            server.start()
            self._broker = Broker(server)
        return self._broker

    def cluster(self) -> Broker:
        """Three brokers with replication, whatever the single broker is; Apache Kafka only."""
        self._not_in_a_container()
        if self._cluster is None:
            server = ApacheKafka(self.folder / "kafka3", self.folder / "logs3", nodes=3)
            self._stops.append(partial(_end, server))
            server.start()
            self._cluster = Broker(server)
        return self._cluster

    def redis_url(self) -> str:
        """Where Redis is."""
        if self.choice.redis_address is None and self.choice.kafka == "docker":
            return self._containers.redis
        return self.choice.redis_address or self.redis().url

    def redis(self) -> Redis:
        """The Redis started here, for tests of faults. Raises ``LookupError`` when it is somebody else's."""
        if self.choice.redis_address is not None:
            raise LookupError("the server at ROOM_TEST_REDIS is not ours to stop")
        self._not_in_a_container()
        if self._redis is None:
            self._redis = Redis(self.folder / "redis", self.folder / "logs" / "redis.log")
            self._stops.append(self._redis.stop)
            self._redis.start()
        return self._redis

    def postgres(self) -> Postgres:
        """The PostgreSQL started here, for tests of faults. Raises ``LookupError`` when it is somebody else's."""
        if self.choice.database_address is not None:
            raise LookupError("the server at ROOM_TEST_DATABASE is not ours to stop")
        self._not_in_a_container()
        if self._postgres is None:
            self._postgres = Postgres(self.folder / "pg", self.folder / "logs" / "postgres.log", durable=False)
            self._stops.append(self._postgres.stop)
            self._postgres.start()
        return self._postgres

    def create_database(self, *, migrated: bool = True) -> str:
        """A new database with the current schema, or an empty one; returns its connection string.

        The schema is applied once and copied by PostgreSQL (``create database ... template``).
        """
        template = self._migrated_template() if migrated else None
        return self._create(f"room_test_{next(self._numbers)}", template)

    def drop_database(self, dsn: str) -> None:
        """Remove a database of :meth:`create_database`, with whoever is still connected."""
        name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        self._administer(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(str(name))))

    def close(self) -> None:
        """Stop what was started, remove its data."""
        for stop in reversed(self._stops):
            stop()
        self._stops.clear()
        self._containers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _migrated_template(self) -> str:
        """The template of the server's day: the schema has partitions by the day, and a run may pass midnight."""
        with psycopg.connect(self._maintenance(), connect_timeout=10) as connection:
            [day] = connection.execute("select to_char(now() at time zone 'UTC', 'YYYYMMDD')").fetchone() or ("",)
        name = f"room_test_template_{day}"
        if self._template != name:
            migrate(self._create(name, None))
            self._template = name
        return name

    def _create(self, name: str, template: str | None) -> str:
        self._administer(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        statement = sql.SQL("create database {} template {}").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        self._administer(statement)
        return make_conninfo(self._maintenance(), dbname=name)

    def _not_in_a_container(self) -> None:
        if self.choice.kafka == "docker":
            raise LookupError("a server in a container loses its address when it is stopped")

    def _maintenance(self) -> str:
        if self.choice.database_address is None and self.choice.kafka == "docker":
            return self._containers.database
        return self.choice.database_address or self.postgres().dsn()

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._maintenance(), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


def _end(server: ApacheKafka | TansuBroker) -> None:
    """Nobody needs the data any more: no farewell between brokers, which takes seconds."""
    for member in server.members if isinstance(server, ApacheKafka) else [server]:
        member.kill()
