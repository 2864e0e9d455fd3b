"""What processes say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from room_common.postgres import service_state
from room_common.postgres.database import Database
from room_common.postgres.service_state import ProcessState
from room_common.postgres.settings import DatabaseSettings
from room_common.service import Context
from room_common.service.state import StateReporter
from room_common.settings import ServiceSettings

pytestmark = pytest.mark.integration


async def states(database: Database) -> Sequence[dict[str, Any]]:
    async with database.transaction() as conn:
        return await service_state.list_states(conn)


async def test_a_process_reports_while_it_lives(postgres_dsn: str) -> None:
    database = Database(DatabaseSettings(dsn=SecretStr(postgres_dsn)))
    await database.start()
    async with database.transaction() as conn:
        await service_state.save(conn, ProcessState("matcher", "killed long ago", "1"))
        await service_state.save(conn, ProcessState("other", "killed long ago", "1"))
        await conn.execute("update service_state set seen_at = now() - interval '2 days'")
    context = Context("matcher", "matcher-h-1", ServiceSettings(), CollectorRegistry(), asyncio.Event())
    reporter = StateReporter(database, context, held=lambda: "llm: timeout", lag=lambda: 7, detail=lambda: {"slots": 2})
    await reporter.start()
    async with asyncio.timeout(20):
        while len(found := await states(database)) != 2 or found[0]["process"] != "matcher-h-1":
            await asyncio.sleep(0.02)
    mine = found[0]
    assert (mine["held_reason"], mine["lag"], mine["detail"]) == ("llm: timeout", 7, {"slots": 2})
    assert found[1]["age_seconds"] > 86_400
    await reporter.stop()
    assert [seen["service"] for seen in await states(database)] == ["other"]
    await database.stop()


async def test_a_report_replaces_the_one_before(postgres_dsn: str) -> None:
    database = Database(DatabaseSettings(dsn=SecretStr(postgres_dsn)))
    await database.start()
    async with database.transaction() as conn:
        await service_state.save(conn, ProcessState("a", "1", "1", held_reason="x", lag=3))
        await service_state.save(conn, ProcessState("a", "1", "2"))
    (found,) = [seen for seen in await states(database) if seen["service"] == "a"]
    assert (found["process"], found["version"], found["held_reason"], found["lag"]) == ("1", "2", None, None)
    await database.stop()


async def test_reporting_survives_a_database_that_is_away() -> None:
    database = Database(DatabaseSettings(dsn=SecretStr("host=127.0.0.1 port=1 dbname=x")))
    context = Context("a", "a-1", ServiceSettings(), CollectorRegistry(), asyncio.Event())
    reporter = StateReporter(database, context)
    await reporter.start()
    await asyncio.sleep(0.05)
    assert reporter.alive() is None
    await reporter.stop()
