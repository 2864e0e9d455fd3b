"""A database, a broker and an inbox for outbound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from room_testing.fake_peer import FakeInbox
from room_testing.sending_world import Sending


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
