"""Databases for the repository and the deliveries, and a whole world for the service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.fake_peer import FakeInbox
from room_testing.sending_world import Sending


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    part = Database(DatabaseSettings(dsn=SecretStr(database_dsn), pool_max=12))
    await part.start()
    yield part
    await part.stop()


@pytest.fixture
def rows_only(database_dsn: str) -> Sending:
    """Without a broker."""
    return Sending(database_dsn)


@pytest.fixture
async def world(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Sending]:
    sending = Sending(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await sending.open()
    yield sending
    await sending.close()


@pytest.fixture
async def inbox() -> AsyncIterator[FakeInbox]:
    async with FakeInbox() as server:
        yield server
