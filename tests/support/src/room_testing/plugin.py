"""The pytest plugin of this repository: parts as fixtures, the choice in the header, tests that need Apache Kafka."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from room_common.errors import ConfigurationError
from room_local.parts.kafka_jars import available, fetch_jars
from room_testing.parts import Broker, Choice, Parts, choose
from room_testing.processes import ServiceProcess

_CHOICE = pytest.StashKey[Choice]()


class StartService(Protocol):
    """The fixture ``start_service``."""

    def __call__(
        self, package: str, env: Mapping[str, str], *, crash: str | None = None, wait: bool = True
    ) -> ServiceProcess: ...


def pytest_configure(config: pytest.Config) -> None:
    """Choose the parts before anything runs."""
    try:
        config.stash[_CHOICE] = choose(os.environ, available)
    except ConfigurationError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> str:
    """Say what was chosen."""
    return f"parts: {config.stash[_CHOICE].describe()}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Apache Kafka before the first test that needs it, since the download may outlast a test's time-out."""
    wanted = any("room_parts" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and session.config.stash[_CHOICE].kafka == "apache" and not session.config.option.collectonly:
        fetch_jars()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs Apache Kafka where it is not; in CI with Apache Kafka demanded, fail instead."""
    if item.get_closest_marker("apache") is None or item.config.stash[_CHOICE].kafka != "wheels":
        return
    reason = "needs Apache Kafka (install Maven and Java 17, or set ROOM_TEST_KAFKA)"
    if os.environ.get("CI") == "true" and os.environ.get("ROOM_TEST_PARTS") == "apache":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def room_parts(pytestconfig: pytest.Config) -> Iterator[Parts]:
    """The parts of this run; each starts when first asked for."""
    parts = Parts(pytestconfig.stash[_CHOICE])
    yield parts
    parts.close()


@pytest.fixture
def server_folder() -> Iterator[Path]:
    """A folder for the data of servers, instead of ``tmp_path``.

    Each start of pytest takes away what others may do in the folder above ``tmp_path``, under the feet of a PostgreSQL
    that, as root, runs as another user.
    """
    folder = Path(tempfile.mkdtemp(prefix="room-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka_bootstrap(room_parts: Parts) -> str:
    """``host:port`` of a broker."""
    return room_parts.kafka_bootstrap()


@pytest.fixture(scope="session")
def kafka_idempotence(room_parts: Parts) -> bool:
    """Whether producers may be idempotent with this broker: the embedded one can't."""
    return room_parts.choice.kafka != "wheels"


@pytest.fixture
def kafka_broker(room_parts: Parts) -> Iterator[Broker]:
    """The broker of ``kafka_bootstrap``, to be killed, restarted, frozen; whole again afterwards."""
    yield from _healed(room_parts.broker)


@pytest.fixture
def kafka_cluster(room_parts: Parts) -> Iterator[Broker]:
    """Three Apache Kafka brokers (mark the test ``apache``); whole again afterwards."""
    yield from _healed(room_parts.cluster)


def _healed(find: Callable[[], Broker]) -> Iterator[Broker]:
    try:
        broker = find()
    except LookupError as error:
        pytest.skip(str(error))
    yield broker
    broker.heal()


@pytest.fixture(scope="session")
def redis_url(room_parts: Parts) -> str:
    """URL of a Redis."""
    return room_parts.redis_url()


@pytest.fixture(scope="module")
def postgres_dsn(room_parts: Parts) -> Iterator[str]:
    """A database with the current schema, shared by the tests of one module."""
    dsn = room_parts.create_database()
    yield dsn
    room_parts.drop_database(dsn)


@pytest.fixture
def database_dsn(room_parts: Parts) -> Iterator[str]:
    """A fresh database with the current schema."""
    dsn = room_parts.create_database()
    yield dsn
    room_parts.drop_database(dsn)


@pytest.fixture
def empty_database_dsn(room_parts: Parts) -> Iterator[str]:
    """A fresh database without any table."""
    dsn = room_parts.create_database(migrated=False)
    yield dsn
    room_parts.drop_database(dsn)


@pytest.fixture
def fresh_topic(kafka_bootstrap: str) -> Callable[..., Awaitable[str]]:
    """``await fresh_topic(partitions=4, config={...})`` makes a topic that no other test uses and returns its name."""

    async def make(
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        bootstrap: str = kafka_bootstrap,
        replicas: int = 1,
    ) -> str:
        name = f"test.{secrets.token_hex(6)}"
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=10_000)
        await admin.start()
        try:
            while admin._client.cluster.controller is None:  # a broker that a test before this one froze or killed
                await asyncio.sleep(0.1)
                await admin._client.force_metadata_update()
            topic = NewTopic(name, partitions, replicas, topic_configs=dict(config or {}))
            await admin.create_topics([topic], timeout_ms=10_000)
        finally:
            await admin.close()
        return name

    return make


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """``start_service("room_matcher", env, crash="point[:nth]", wait=False)``; everything is stopped afterwards."""
    started: list[ServiceProcess] = []

    def start(package: str, env: Mapping[str, str], *, crash: str | None = None, wait: bool = True) -> ServiceProcess:
        service = ServiceProcess(package, env, tmp_path, crash=crash, number=len(started) + 1)
        started.append(service)
        service.launch()
        if wait:
            service.wait_ready()
        return service

    yield start
    for service in reversed(started):
        service.stop()
