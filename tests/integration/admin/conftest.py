"""The API of admin on a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from room_testing.administering import Administering, opened


@pytest.fixture
async def admin(postgres_dsn: str) -> AsyncIterator[Administering]:
    """The API on the module's database; rooms of other tests may be there."""
    async with opened(postgres_dsn) as world:
        yield world


@pytest.fixture
async def own_admin(database_dsn: str) -> AsyncIterator[Administering]:
    """The API on a database of the test's own."""
    async with opened(database_dsn) as world:
        yield world
