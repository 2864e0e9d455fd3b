"""A database and a broker for the matcher."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from room_testing.matching import Matching


@pytest.fixture
async def matching(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Matching]:
    world = Matching(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await world.open()
    yield world
    await world.close()
