"""The rows of the outbox under many deliverers: one winner, order per target, nothing settled late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from room_common.postgres import sending
from room_common.postgres.database import Database
from room_common.postgres.sending import Claimed
from room_testing.sending_world import Sending

pytestmark = pytest.mark.integration

LEASE = 60.0


async def claim(database: Database, message_id: UUID, owner: str = "a") -> Claimed | None:
    async with database.transaction() as conn:
        return await sending.claim(conn, message_id, owner, LEASE)


async def taken(database: Database, message_id: UUID, owner: str = "a") -> Claimed:
    claimed = await claim(database, message_id, owner)
    assert claimed is not None
    return claimed


async def sent(database: Database, claimed: Claimed, owner: str = "a") -> float | None:
    async with database.transaction() as conn:
        return await sending.settle_sent(conn, claimed, owner, "p1")


async def due(database: Database) -> list[UUID]:
    async with database.transaction() as conn:
        return list(await sending.due(conn, 100))


async def test_one_of_many_claims_wins(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    for _ in range(10):
        message = await rows_only.message(room, target=f"t{random.random()}")
        claims = await asyncio.gather(*(claim(database, message, f"o{n}") for n in range(12)))
        winners = [claimed for claimed in claims if claimed is not None]
        assert [claimed.attempt for claimed in winners] == [1]
        assert winners[0].parts_sent == 0 and not winners[0].once_only


@pytest.mark.parametrize("seed", range(4))
async def test_no_row_is_claimed_before_an_earlier_open_one(database: Database, rows_only: Sending, seed: int) -> None:
    """Workers claim, settle, give up, die and come back in random order; whoever holds a row is the first open one."""
    rng = random.Random(seed)
    room = await rows_only.room()
    messages = [
        (target, await rows_only.message(room, target=target, status=rng.choice(["queued", "published"])))
        for _ in range(6)
        for target in ("x", "y")
    ]
    order: dict[str, list[UUID]] = {"x": [], "y": []}
    holders: Counter[str] = Counter()

    async def worker(owner: str) -> None:
        for _ in range(60):
            target, message = rng.choice(messages)
            claimed = await claim(database, message, owner)
            if claimed is None:
                continue
            holders[target] += 1
            assert holders[target] == 1, "two rows of a target under way at once"
            await asyncio.sleep(rng.random() * 0.01)
            holders[target] -= 1
            fate = rng.random()
            if fate < 0.5:
                order[target].append(message)
                assert await sent(database, claimed, owner) is not None
            elif fate < 0.7:
                async with database.transaction() as conn:
                    assert await sending.settle_retry(conn, claimed, owner, "timeout", 0)
            elif fate < 0.85:
                order[target].append(message)
                async with database.transaction() as conn:
                    assert await sending.settle_failed(conn, claimed, owner, "http_400")
            else:
                await rows_only.cut_off(message)  # died: somebody takes it again, and its own settlement is refused
                again = await claim(database, message, f"{owner}'")
                if again is not None:
                    assert await sent(database, claimed, owner) is None
                    async with database.transaction() as conn:
                        assert await sending.settle_retry(conn, again, f"{owner}'", "timeout", 0)

    await asyncio.gather(*(worker(f"w{n}") for n in range(6)))
    for target, settled in order.items():
        assert settled == [message for name, message in messages if name == target][: len(settled)]
    assert any(order.values())


async def test_a_delivery_past_its_lease_settles_nothing(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    message = await rows_only.message(room)
    late = await taken(database, message)
    assert await claim(database, message, "b") is None
    await rows_only.cut_off(message)
    assert await due(database) == [message]
    again = await taken(database, message, "b")
    assert again.attempt == 2
    async with database.transaction() as conn:
        assert await sending.settle_sent(conn, late, "a", "p") is None
        assert not await sending.settle_retry(conn, late, "a", "timeout", 1)
        assert not await sending.settle_failed(conn, late, "a", "timeout")
        assert not await sending.settle_unknown(conn, late, "a", "timeout")
        assert not await sending.advance(conn, late, "a", 1, LEASE)
        assert await sending.settle_sent(conn, again, "a", "p") is None, "nor under another's name"
    age = await sent(database, again, "b")
    assert age is not None and age >= 0
    assert await rows_only.activity(room) == ["message_sent"]
    row = await rows_only.row(message)
    assert (row["status"], row["provider_message_id"], row["lease_until"]) == ("sent", "p1", None)


async def test_nor_does_an_earlier_try_of_the_same_process(database: Database, rows_only: Sending) -> None:
    message = await rows_only.message(await rows_only.room())
    late = await taken(database, message)
    await rows_only.cut_off(message)
    again = await taken(database, message)
    assert await sent(database, late) is None
    async with database.transaction() as conn:
        assert not await sending.settle_failed(conn, late, "a", "timeout")
    assert await sent(database, again) is not None


async def test_a_retry_waits_for_its_time_and_holds_back_what_follows(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    first, second = await rows_only.message(room), await rows_only.message(room)
    other = await rows_only.message(room, target="somebody else")
    claimed = await taken(database, first)
    async with database.transaction() as conn:
        assert await sending.settle_retry(conn, claimed, "a", "http_503", 60)
        assert await sending.next_of_target(conn, claimed) == first
    assert await due(database) == [other]
    assert await claim(database, first) is None and await claim(database, second) is None
    await rows_only.hurry(first)
    assert set(await due(database)) == {first, other}
    claimed = await taken(database, first)
    await sent(database, claimed)
    async with database.transaction() as conn:
        assert await sending.next_of_target(conn, claimed) == second
    await sent(database, await taken(database, second))
    async with database.transaction() as conn:
        assert await sending.next_of_target(conn, claimed) is None


async def test_what_may_be_sent_once_only_becomes_unknown(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    await rows_only.once_only(room)
    message, following = await rows_only.message(room), await rows_only.message(room)
    claimed = await taken(database, message)
    assert claimed.once_only
    async with database.transaction() as conn:
        assert await sending.expire_once_only(conn) == []
    await rows_only.cut_off(message)
    assert await due(database) == [] and await claim(database, message) is None
    async with database.transaction() as conn:
        assert await sending.expire_once_only(conn) == [message]
        assert await sending.expire_once_only(conn) == []
    row = await rows_only.row(message)
    assert (row["status"], row["error"]) == ("unknown", "interrupted")
    assert await rows_only.activity(room) == ["message_failed"]
    assert await sent(database, claimed) is None
    assert await due(database) == [following], "what follows goes on"


async def test_parts_are_counted_and_the_lease_is_renewed(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    message = await rows_only.message(room)
    claimed = await taken(database, message)
    await rows_only.cut_off(message)
    async with database.transaction() as conn:
        assert await sending.advance(conn, claimed, "a", 1, LEASE)
    assert await claim(database, message, "b") is None
    await rows_only.cut_off(message)
    again = await taken(database, message, "b")
    assert (again.attempt, again.parts_sent) == (2, 1)


async def test_settled_and_missing_rows_are_never_claimed(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    for status in ("sent", "failed", "unknown"):
        message = await rows_only.message(room, status=status)
        assert await claim(database, message) is None
    assert await claim(database, UUID(int=1)) is None
    assert await due(database) == []
