"""The deciding transaction on a real PostgreSQL: one decision per item, an exact cap, remembered verdicts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from room_common.domain.deliveries import Outcome
from room_common.identity import new_id
from room_common.postgres import backlog, decisions, ledger, sources
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.matching import Matching, SeededSource

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC)


@pytest.fixture
def world(database_dsn: str) -> Matching:
    return Matching(database_dsn)


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    database = Database(DatabaseSettings(dsn=SecretStr(database_dsn), pool_max=20, lock_timeout=20))
    await database.start()
    yield database
    await database.stop()


def entry(
    source: SeededSource, outcome: Outcome = "matched", *, key: str | None = None, content: int = 1
) -> ledger.Entry:
    """A fresh row; with ``key`` its verdict is remembered for a minute."""
    dedup = None if key is None else ledger.Dedup(key, bytes([content] * 32), 60)
    return ledger.Entry(
        received_at=NOW,
        id=new_id(),
        item=0,
        outcome=outcome,
        size=2,
        topic="t",
        partition=0,
        offset=0,
        source_id=source.id,
        instance_id=source.instance_id,
        tokens=10,
        dedup=dedup,
    )


def event(source: SeededSource, row: ledger.Entry) -> backlog.Event:
    """The backlog's side of ``row``."""
    return backlog.Event(
        id=new_id(),
        instance_id=source.instance_id,
        source_id=source.id,
        definition_id=source.definitions[0],
        delivery_id=row.id,
        item=row.item,
        raw_body=b"\x00\xff",
        content_type=None,
        headers={"x": "y"},
        verified=True,
        traceparent=None,
        received_at=NOW,
    )


async def decide(database: Database, source: SeededSource, row: ledger.Entry, cap: int = 100) -> Outcome | None:
    async with database.transaction() as conn:
        return await ledger.decide(conn, row, event(source, row), "label", cap)


async def test_fifty_deciders_admit_exactly_the_cap(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    other = await world.source(source.instance_id)
    rows = [entry(source if number % 2 else other, key=f"k{number}") for number in range(150)]
    slots = asyncio.Semaphore(50)

    async def one(number: int) -> Outcome | None:
        async with slots:
            return await decide(database, source if number % 2 else other, rows[number])

    outcomes = Counter(await asyncio.gather(*(one(number) for number in range(150))))
    assert outcomes == {"matched": 100, "backlog_full": 50}
    assert len(await world.backlog(source.instance_id)) == 100
    ledgered = await world.query("select outcome, count(*)::int as n from webhook_deliveries group by outcome")
    assert {row["outcome"]: row["n"] for row in ledgered} == outcomes
    (remembered,) = await world.query("select count(*)::int as n from webhook_dedup")
    assert remembered["n"] == 100
    (usage,) = await world.query("select tokens from token_usage")
    assert usage["tokens"] == 1500


async def test_a_place_that_is_free_again_is_taken_and_returned_events_do_not_count_as_new(
    world: Matching, database: Database
) -> None:
    source = await world.source(await world.instance())
    assert await decide(database, source, entry(source, key="a"), cap=1) == "matched"
    full = entry(source, key="b")
    assert await decide(database, source, full, cap=1) == "backlog_full"
    await world.query("update event_backlog set status = 'processing', cycle_id = %s", new_id())
    assert await decide(database, source, replace(full, id=new_id()), cap=1) == "matched"


async def test_three_copies_of_one_delivery_at_once_are_one_row(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    copies = [entry(source, key="same") for _ in range(3)]
    outcomes = await asyncio.gather(*(decide(database, source, row) for row in copies))
    assert Counter(outcomes) == {"matched": 1, "duplicate": 2}
    assert len(await world.backlog(source.instance_id)) == 1
    assert len(await world.query("select id from webhook_deliveries")) == 3


async def test_a_redelivery_decides_nothing(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    row = entry(source, key="k")
    outcomes = await asyncio.gather(*(decide(database, source, row) for _ in range(5)))
    assert Counter(outcomes) == {"matched": 1, None: 4}
    assert len(await world.backlog(source.instance_id)) == 1
    async with database.transaction() as conn:
        assert await ledger.record(conn, [replace(row, outcome="no_match")]) == [None]
        assert await decisions.decided(conn, [row_key(row), (NOW, new_id())]) == {row.id: {0}}
        assert await decisions.receipts(conn, [row.id, new_id()]) == {row.id: row.received_at}


async def test_the_backlog_knows_an_item_whose_ledger_row_has_another_key(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    row = entry(source, key="k")
    assert await decide(database, source, row) == "matched"
    moved = replace(row, received_at=NOW - timedelta(seconds=1), dedup=ledger.Dedup("other", bytes(32), 60))
    assert await decide(database, source, moved) == "duplicate"
    assert len(await world.backlog(source.instance_id)) == 1


async def test_another_content_under_one_id_is_no_duplicate(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    assert await decide(database, source, entry(source, key="k", content=1)) == "matched"
    assert await decide(database, source, entry(source, key="k", content=2)) == "matched"
    async with database.transaction() as conn:
        (known,) = (await decisions.remembered(conn, [(source.id, "k"), (source.id, "none")])).values()
        assert {each.content_sha256[0] for each in known} == {1, 2}


async def test_a_verdict_is_remembered_for_its_time_and_per_source(world: Matching, database: Database) -> None:
    source, other = await world.source(await world.instance()), await world.source(await world.instance())
    assert await decide(database, source, entry(source, key="k")) == "matched"
    assert await decide(database, other, entry(other, key="k")) == "matched"
    await world.query("update webhook_dedup set expires_at = now() where source_id = %s", source.id)
    again = entry(source, key="k")
    assert await decide(database, source, again) == "matched"
    async with database.transaction() as conn:
        ((known,),) = (await decisions.remembered(conn, [(source.id, "k")])).values()
        assert known.delivery_id == again.id


async def test_rows_written_together_end_as_if_written_one_by_one(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    first = entry(source, "no_match", key="k")
    rows = [
        first,
        entry(source, "bad_signature"),
        entry(source, "no_match", key="k"),
        first,
        replace(entry(source, "undecodable"), source_id=None, instance_id=None, reason="bad\x00reason"),
    ]
    async with database.transaction() as conn:
        outcomes = await ledger.record(conn, rows)
    assert outcomes in (
        ["no_match", "bad_signature", "duplicate", None, "undecodable"],
        ["duplicate", "bad_signature", "no_match", None, "undecodable"],
    )
    stored = await world.query("select id, outcome, reason from webhook_deliveries")
    assert {row["outcome"] for row in stored} == {"no_match", "bad_signature", "duplicate", "undecodable"}
    assert "bad\N{REPLACEMENT CHARACTER}reason" in {row["reason"] for row in stored}


async def test_an_event_is_offered_when_its_definition_has_cooled_down(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance())
    await world.query("update event_definitions set cooling_until = now() + interval '1 hour'")
    assert await decide(database, source, entry(source, key="k")) == "matched"
    (row,) = await world.query(
        "select b.next_attempt_at = d.cooling_until as cooled, b.raw_body from event_backlog b, event_definitions d"
    )
    assert (row["cooled"], row["raw_body"]) == (True, b"\x00\xff")


async def test_a_token_leads_to_everything_that_decides(world: Matching, database: Database) -> None:
    source = await world.source(await world.instance(), "github", criteria=["second", "first", "off"])
    await world.query("update event_definitions set priority = -1 where id = %s", source.definitions[1])
    await world.query("update event_definitions set enabled = false where id = %s", source.definitions[2])
    await world.query("update instances set models = %s", Jsonb({"fast": "tiny"}))
    await world.query("update event_sources set deleted_at = now()")
    await world.query("update source_tokens set valid_until = now()")
    async with database.transaction() as conn:
        found = (await sources.by_tokens(conn, [source.digest, bytes(32)])).get(source.digest)
        assert await sources.by_tokens(conn, [bytes(32)]) == {}
    assert found is not None
    assert [definition.id for definition in found.definitions] == [source.definitions[1], source.definitions[0]]
    assert (found.deleted, found.enabled, found.room_enabled, found.fast_model) == (True, True, True, "tiny")
    assert found.valid_until is not None
    shown = repr(found)
    assert "config=" not in shown
    assert "token_encrypted=" not in shown


def row_key(row: ledger.Entry) -> tuple[datetime, UUID]:
    return row.received_at, row.id
