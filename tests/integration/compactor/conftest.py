"""An activity log and a database for the repositories."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.activity_log import ActivityLog


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    part = Database(DatabaseSettings(dsn=SecretStr(database_dsn), pool_max=8))
    await part.start()
    yield part
    await part.stop()


@pytest.fixture
def log(database_dsn: str) -> ActivityLog:
    return ActivityLog(database_dsn)
