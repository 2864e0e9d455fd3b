"""Databases for the repositories, and a whole world for the service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.scheduling import Scheduling


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    part = Database(DatabaseSettings(dsn=SecretStr(database_dsn), pool_max=12))
    await part.start()
    yield part
    await part.stop()


@pytest.fixture
def rooms_only(database_dsn: str) -> Scheduling:
    """Without a broker."""
    return Scheduling(database_dsn)


@pytest.fixture
async def world(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Scheduling]:
    scheduling = Scheduling(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await scheduling.open()
    yield scheduling
    await scheduling.close()
