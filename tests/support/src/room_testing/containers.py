"""Kafka, PostgreSQL and Redis in containers, where an engine answers: a client alone does not count.

What is in a container keeps its address only as long as it runs, so tests of faults leave it alone and are skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cached_property

KAFKA = "confluentinc/cp-kafka:7.9.2"
POSTGRES = "postgres:17.6-bookworm"
REDIS = "redis:8.0.2-bookworm"

_LIMIT = 3.0


def engine_missing() -> str | None:
    """Why containers can't be started here, None when an engine answers within 3 s."""
    try:
        asked = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True, timeout=_LIMIT
        )
    except FileNotFoundError:
        return "there is no docker command"
    except subprocess.TimeoutExpired:
        return f"no Docker engine answered within {_LIMIT:.0f} s"
    return None if asked.returncode == 0 and asked.stdout.strip() else "no Docker engine answers"


class Containers:
    """Each is started when its address is first asked for, all are removed by :meth:`close`."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], object]] = []

    @cached_property
    def kafka(self) -> str:
        """``host:port`` of a broker."""
        from testcontainers.community.kafka import KafkaContainer

        container = KafkaContainer(KAFKA).with_kraft()
        container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        container.with_env("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
        self._stops.append(container.stop)
        container.start()
        return str(container.get_bootstrap_server())

    @cached_property
    def database(self) -> str:
        """Connection string of PostgreSQL, as its superuser."""
        from testcontainers.community.postgres import PostgresContainer

        container = PostgresContainer(POSTGRES, driver=None)
        self._stops.append(container.stop)
        container.start()
        return str(container.get_connection_url(driver=None))

    @cached_property
    def redis(self) -> str:
        """URL of Redis."""
        from testcontainers.community.redis import RedisContainer

        container = RedisContainer(REDIS)
        self._stops.append(container.stop)
        container.start()
        return f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}"

    def close(self) -> None:
        """Remove what was started."""
        for stop in reversed(self._stops):
            stop()
        self._stops.clear()
