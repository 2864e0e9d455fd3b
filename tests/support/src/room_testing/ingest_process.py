"""ingest as a real process, on a real broker with Room's topics: fixtures for a conftest to import."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW, topic
from room_common.domain.tokens import TokenKeys, make_token
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_local.parts.addresses import HOST, free_port
from room_testing.matching import TOKEN_KEYS
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess

KEY = "ab" * 32


@pytest.fixture(scope="session")
def tokens() -> list[str]:
    """Forty tokens that ingest knows as its own."""
    keys = TokenKeys((bytes.fromhex(KEY),))
    return [make_token(keys, secrets.token_bytes(24)) for _ in range(40)]


def overflow_login(dsn: str) -> str:
    """The connection string of ingest's own role on the database at ``dsn``."""
    user, word = "room_test_ingest", "overflow"
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("select 1 from pg_roles where rolname = %s", (user,)).fetchone() is None:
            statement = sql.SQL("create role {} login password {} in role room_ingest_overflow")
            connection.execute(statement.format(sql.Identifier(user), sql.Literal(word)))
    return make_conninfo(dsn, user=user, password=word)


def ingest_settings(bootstrap: str, dsn: str, port: int, **more: str) -> dict[str, str]:
    """The environment of an ingest beside a :class:`~room_testing.matching.Matching` on the database at ``dsn``."""
    return {
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "ROOM_TOKEN_KEYS": TOKEN_KEYS,
        "ROOM_OVERFLOW__DSN": overflow_login(dsn),
        "ROOM_INGEST__HOST": HOST,
        "ROOM_INGEST__PORT": str(port),
        **more,
    }


@pytest.fixture
def overflow_dsn(database_dsn: str) -> str:
    """A fresh database as ingest may use it."""
    return overflow_login(database_dsn)


MakeIngest = Callable[..., Awaitable[tuple[ServiceProcess, int]]]


@pytest.fixture
def make_ingest(start_service: StartService) -> MakeIngest:
    """``await make_ingest(bootstrap, idempotence, topics=True, wait=True, ROOM_INGEST__X="1")``: process and port."""

    async def make(
        bootstrap: str,
        idempotence: bool,
        *,
        topics: bool = True,
        wait: bool = True,
        replicas: int = 1,
        crash: str | None = None,
        **env: str,
    ) -> tuple[ServiceProcess, int]:
        if topics:
            settings = KafkaSettings(
                bootstrap_servers=bootstrap,
                idempotence=idempotence,
                replication_factor=replicas,
                min_insync_replicas=min(2, replicas),
            )
            await create_topics(settings, [topic(WEBHOOKS_RAW), topic(REPLIES_RAW)])
        port = free_port()
        service = start_service(
            "room_ingest",
            {
                "ROOM_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
                "ROOM_KAFKA__IDEMPOTENCE": str(idempotence).lower(),
                "ROOM_TOKEN_KEYS": f"a:{KEY}",
                "ROOM_INGEST__HOST": "127.0.0.1",
                "ROOM_INGEST__PORT": str(port),
                "ROOM_INGEST__RATE_PER_TOKEN": "0",
                **env,
            },
            wait=wait,
            crash=crash,
        )
        return service, port

    return make
