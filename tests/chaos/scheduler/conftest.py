"""A database and a broker for the scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from room_testing.scheduling import Scheduling


@pytest.fixture
async def world(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Scheduling]:
    scheduling = Scheduling(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await scheduling.open()
    yield scheduling
    await scheduling.close()
