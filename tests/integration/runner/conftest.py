"""Databases for the repositories, and a whole world for the service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.running import Running
from room_testing.staging import Stage


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    part = Database(DatabaseSettings(dsn=SecretStr(database_dsn), pool_max=12))
    await part.start()
    yield part
    await part.stop()


@pytest.fixture
def rooms_only(database_dsn: str) -> Running:
    """Without a broker."""
    return Running(database_dsn)


@pytest.fixture
def stage(database: Database, rooms_only: Running) -> Stage:
    """Runs cycles without a process."""
    return Stage(database, rooms_only)


@pytest.fixture
async def running(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Running]:
    world = Running(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await world.open()
    yield world
    await world.close()
