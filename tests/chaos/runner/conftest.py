"""A database and a broker for room-runner."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from room_testing.running import Running


@pytest.fixture
async def running(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Running]:
    world = Running(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await world.open()
    yield world
    await world.close()
