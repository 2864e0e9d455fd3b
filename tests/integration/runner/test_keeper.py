"""Leases are renewed whatever the event loop does, and given up when they can't be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime

import pytest
from pydantic import SecretStr

from room_common.errors import DependencyUnavailable
from room_common.postgres import leases
from room_common.postgres.database import Database
from room_common.postgres.lease_connection import LeaseConnection
from room_common.postgres.leases import Lease, Renewal
from room_common.postgres.settings import DatabaseSettings
from room_runner.keeper import LeaseKeeper, Loss
from room_testing.running import Running

pytestmark = pytest.mark.integration


async def test_a_blocked_event_loop_costs_nobody_a_lease(
    database: Database, rooms_only: Running, database_dsn: str
) -> None:
    room = await rooms_only.room()
    await rooms_only.wake(room)
    keeper = LeaseKeeper(
        DatabaseSettings(dsn=SecretStr(database_dsn)), "worker", lease_seconds=2.0, renew_seconds=0.3, fence_seconds=1.5
    )
    await keeper.start()
    lost: list[Loss] = []
    try:
        asked_at = time.monotonic()
        async with database.transaction() as conn:
            lease = await leases.claim(conn, "worker", 2.0)
        assert lease is not None
        keeper.hold(lease, asked_at, lost.append)
        time.sleep(5.0)  # as a tool of somebody's would: longer than lease and fence together
        await asyncio.sleep(0.6)
        (row,) = await rooms_only.query("select lease_owner, lease_until > now() as held from instance_room")
        assert (lost, row["lease_owner"], row["held"]) == ([], "worker", True)
        await rooms_only.query("update instance_room set lease_epoch = lease_epoch + 1")
        while not lost:
            await asyncio.sleep(0.05)
        assert lost == ["taken"]
    finally:
        await keeper.stop()


async def test_only_what_could_not_be_renewed_is_looked_at_again_before_its_time(
    database: Database, rooms_only: Running, database_dsn: str
) -> None:
    for _ in range(2):
        await rooms_only.wake(await rooms_only.room())
    settings = DatabaseSettings(dsn=SecretStr(database_dsn))
    keeper = LeaseKeeper(settings, "worker", lease_seconds=300.0, renew_seconds=100.0, fence_seconds=200.0)
    async with database.transaction() as conn:
        free, locked = await leases.claim_many(conn, "worker", 30.0, 2)
    for lease in (free, locked):
        keeper.hold(lease, time.monotonic(), lambda loss: None)

    async def ends(lease: Lease) -> datetime:
        (row,) = await rooms_only.query(
            "select lease_until from instance_room where instance_id = %s", lease.instance_id
        )
        found: datetime = row["lease_until"]
        return found

    before = {lease: await ends(lease) for lease in (free, locked)}
    try:
        async with database.transaction() as conn:
            await conn.execute("select from instance_room where instance_id = %s for update", (locked.instance_id,))
            await keeper.start()
            while await ends(free) == before[free]:
                await asyncio.sleep(0.05)
            renewed = await ends(free)
            assert await ends(locked) == before[locked]
        while await ends(locked) == before[locked]:
            await asyncio.sleep(0.05)
        assert await ends(free) == renewed
    finally:
        await keeper.stop()


async def test_a_database_that_was_away_and_a_lease_that_was_taken_are_noticed_before_the_next_turn(
    database: Database, rooms_only: Running, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await rooms_only.room()
    await rooms_only.wake(room)
    async with database.transaction() as conn:
        lease = await leases.claim(conn, "worker", 30.0)
    assert lease is not None
    await rooms_only.query("update instance_room set lease_epoch = lease_epoch + 1")
    renew, tries = LeaseConnection.renew, 0

    def away_at_first(self: LeaseConnection, owner: str, held: Sequence[Lease], seconds: float) -> Renewal:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise DependencyUnavailable("postgresql", "timeout")
        return renew(self, owner, held, seconds)

    monkeypatch.setattr(LeaseConnection, "renew", away_at_first)
    settings = DatabaseSettings(dsn=SecretStr(database_dsn))
    keeper = LeaseKeeper(settings, "worker", lease_seconds=900.0, renew_seconds=300.0, fence_seconds=600.0)
    lost: list[Loss] = []
    keeper.hold(lease, time.monotonic(), lost.append)
    await keeper.start()
    try:
        while not lost:
            await asyncio.sleep(0.05)
        assert (lost, tries) == (["taken"], 3)
    finally:
        await keeper.stop()
