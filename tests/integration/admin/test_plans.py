"""Lists read no whole table: PostgreSQL plans their statements with an index, with real rows and statistics."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from room_testing.administering import Administering, ListedRoom, opened
from room_testing.statements import fill, recorded, scanned

pytestmark = pytest.mark.integration

BIG = (
    "webhook_deliveries",
    "event_backlog",
    "room_inbox",
    "room_cycles",
    "outbound_messages",
    "room_activity_log",
    "audit_log",
)
LISTS: dict[str, dict[str, str]] = {
    "/deliveries": {"source": "crm", "outcome": "bad_signature", "since": "2020-01-01T00:00:00Z"},
    "/backlog": {"status": "failed", "since": "2020-01-01T00:00:00Z"},
    "/inbox": {"status": "read", "since": "2020-01-01T00:00:00Z"},
    "/cycles": {"status": "succeeded", "since": "2020-01-01T00:00:00Z"},
    "/messages": {"status": "failed", "since": "2020-01-01T00:00:00Z"},
    "/activity": {"kind": "error", "since": "2020-01-01T00:00:00Z"},
    "/audit": {"actor": "filled", "action": "tick", "since": "2020-01-01T00:00:00Z"},
}
ASKED = [(path, named) for path, filters in LISTS.items() for named in ("", *filters)]


@pytest.fixture(scope="module")
def room(postgres_dsn: str) -> ListedRoom:
    """A room among others, with enough rows that reading all of them is not the cheapest plan."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            return await world.listed("plans")

    made = asyncio.run(make())
    fill(postgres_dsn, made, deliveries=20_000, others=5_000)
    return made


async def read_whole(admin: Administering, path: str, **parameters: str) -> list[tuple[str, str]]:
    """Of a request: the big tables that are read from beginning to end, and by which statement."""
    with recorded() as statements:
        await admin.get(path, **parameters)
    found = []
    async with await psycopg.AsyncConnection.connect(admin.dsn) as conn:
        for statement in statements:
            if statement.reads:
                text: Any = "explain (format json) " + str(statement.text)
                row = await (await conn.execute(text, statement.parameters)).fetchone()
                assert row is not None
                found += [(table, text) for table in scanned(row[0][0]["Plan"]) if _big(table)]
    return found


def _big(table: str) -> bool:
    """Partitions of days count, the one by default has no rows here."""
    return any(table == name or (table.startswith(name + "_2")) for name in BIG)


@pytest.mark.parametrize(("path", "named"), ASKED, ids=[f"{path} {named}" for path, named in ASKED])
async def test_a_list_uses_an_index(admin: Administering, room: ListedRoom, path: str, named: str) -> None:
    filters = {named: LISTS[path][named]} if named else {}
    assert await read_whole(admin, path, **filters) == []
    assert await read_whole(admin, path, room=room.slug, **filters) == []
    first = await admin.get(path, limit="1", **filters)
    assert await read_whole(admin, path, cursor=first["next"], **filters) == []


async def test_a_statement_without_an_index_is_seen(admin: Administering, room: ListedRoom) -> None:
    async with await psycopg.AsyncConnection.connect(admin.dsn) as conn:
        query: Any = "explain (format json) select * from event_backlog where octet_length(raw_body) = 7"
        row = await (await conn.execute(query)).fetchone()
    assert row is not None
    assert [*scanned(row[0][0]["Plan"])] == ["event_backlog"]
