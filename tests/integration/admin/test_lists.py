"""Lists: pages, filters, limits, whatever a caller sends, and a database that is away."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from room_admin.api import build
from room_common.identity import new_id
from room_common.postgres import listings
from room_common.postgres.listings import LISTINGS, ListName
from room_testing.administering import TOKENS, Administering, ListedRoom, opened
from room_testing.parts import Parts

pytestmark = pytest.mark.integration

LISTS: tuple[ListName, ...] = ("deliveries", "backlog", "inbox", "cycles", "messages", "activity")
ROWS = 13


@pytest.fixture(scope="module")
def room(postgres_dsn: str) -> ListedRoom:
    """A room with several rows in every list, three of them of one time."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            await world.listed("other")
            return await world.listed("lists", ROWS)

    return asyncio.run(make())


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("limit", [1, 2, 5, 500])
async def test_pages_cover_every_row_once(admin: Administering, room: ListedRoom, name: str, limit: int) -> None:
    whole = (await admin.get(f"/{name}", room=room.slug, limit=500))["items"]
    assert len(whole) == ROWS
    assert {row["room"] for row in whole} == {room.slug}
    collected: list[dict[str, Any]] = []
    cursor = None
    while True:
        parameters: dict[str, Any] = {"room": room.slug, "limit": limit} | ({"cursor": cursor} if cursor else {})
        page = await admin.get(f"/{name}", "operator", **parameters)
        collected += page["items"]
        assert len(page["items"]) <= limit
        cursor = page["next"]
        if cursor is None:
            break
        assert len(page["items"]) == limit
    assert collected == whole


async def test_pages_stay_whole_while_rows_arrive(own_admin: Administering) -> None:
    room = await own_admin.listed("busy", 30)
    before = {row["id"] for row in (await own_admin.get("/inbox", limit=500))["items"]}
    stop = asyncio.Event()

    async def arrive() -> int:
        count = 0
        while not stop.is_set():
            await own_admin.query(
                "insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, received_at)"
                " values (%s, %s, 'local', 'me', 'x', %s, now())",
                new_id(),
                room.instance_id,
                str(uuid4()),
            )
            count += 1
        return count

    arriving = asyncio.create_task(arrive())
    seen: list[str] = []
    cursor = None
    while True:
        parameters: dict[str, Any] = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = await own_admin.get("/inbox", "operator", **parameters)
        seen += [row["id"] for row in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    stop.set()
    assert await arriving > 0
    assert len(seen) == len(set(seen))
    assert before <= set(seen)


async def test_filters(admin: Administering, room: ListedRoom) -> None:
    async def count(path: str, **parameters: object) -> int:
        return len((await admin.get(path, "operator", **{"limit": 500, **parameters}))["items"])

    assert await count("/deliveries", source="crm", room=room.slug) == ROWS
    assert await count("/deliveries", source="crm") == ROWS + 1
    assert await count("/deliveries", source="none of this name") == 0
    assert await count("/deliveries", outcome="matched") == ROWS + 1
    assert await count("/deliveries", outcome="dead") == 0
    assert await count("/backlog", status="pending", room=room.slug) == ROWS
    assert await count("/backlog", status="failed") == 0
    assert await count("/activity", kind="error") == ROWS + 1
    assert await count("/activity", kind="nothing_like_it") == 0
    assert await count("/cycles", since="2999-01-01T00:00:00Z") == 0
    assert await count("/cycles", since="2000-01-01T00:00:00+14:00") == ROWS + 1


async def test_one_row(admin: Administering, room: ListedRoom) -> None:
    assert (await admin.get(f"/backlog/{room.event_id}"))["id"] == str(room.event_id)
    assert (await admin.get(f"/cycles/{room.cycle_id}"))["status"] == "succeeded"
    assert len((await admin.get(f"/deliveries/{room.delivery_id}"))["items"]) == 1
    assert [row["role"] for row in (await admin.get(f"/cycles/{room.cycle_id}/messages"))["items"]] == ["user"]
    payload = await admin.get(f"/backlog/{room.event_id}/payload")
    assert base64.b64decode(payload["raw"]) == b'{"a": "private"}'
    assert payload["decoded"] == {"a": "private"}


@pytest.mark.parametrize(
    "raw", [b'{"n":1' + b"0" * 300 + b"}", b'"\\ud800\\u0000"', b"\xff\xfe\x00", b"", b"[1e999]", b"[" * 5000]
)
async def test_any_payload_can_be_shown(admin: Administering, room: ListedRoom, raw: bytes) -> None:
    event = new_id()
    await admin.query(
        "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body,"
        " content_type, verified, received_at) select %s, instance_id, source_id, event_definition_id, %s, %s,"
        " 'application/json', false, '2000-01-01' from event_backlog where id = %s",
        event,
        new_id(),
        raw,
        room.event_id,
    )
    try:
        answer = await admin.call("GET", f"/backlog/{event}/payload")
        assert answer.status_code == 200
        assert base64.b64decode(json.loads(answer.content)["raw"]) == raw
    finally:
        await admin.query("delete from event_backlog where id = %s", event)


async def test_stats_count_what_the_lists_show(admin: Administering, room: ListedRoom) -> None:
    stats = await admin.get("/stats", room=room.slug)
    assert stats["outcomes"]["matched"]["items"] == ROWS
    assert stats["events"] == {"pending": ROWS}
    assert stats["cycles"] == {"succeeded": ROWS}
    assert datetime.fromisoformat(stats["since"]).tzinfo is not None
    assert (await admin.get("/stats", since="2999-01-01T00:00:00Z"))["outcomes"] == {}


def _cursor(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=").decode()


BAD_PARAMETERS = [
    ("limit", "0"),
    ("limit", "501"),
    ("limit", "-1"),
    ("limit", "x"),
    ("limit", "1" * 5000),
    ("limit", "1e99"),
    ("cursor", ""),
    ("cursor", "x"),
    ("cursor", "x" * 401),
    ("cursor", "\0"),
    ("cursor", "é"),
    ("cursor", _cursor("t2026-01-01T00:00:00+20:00", "u" + str(UUID(int=1)))),
    ("cursor", _cursor("t0001-01-01T00:00:00+23:59", "u" + str(UUID(int=1)))),
    ("room", "Upper"),
    ("room", "a\0"),
    ("room", "x" * 64),
    ("room", "'; drop table instances; --"),
    ("since", "yesterday"),
    ("since", "2026-01-01T00:00:00"),
    ("since", "0001-01-01T00:00:00+23:59"),
    ("since", "9999-12-31T23:59:59-23:59"),
    ("since", "10000-01-01T00:00:00Z"),
    ("since", "9" * 400),
    ("since", "\0"),
]


@pytest.mark.parametrize("name", LISTS)
async def test_bad_parameters_are_told(admin: Administering, name: str) -> None:
    more = {"deliveries": [("outcome", "mached"), ("source", "a\0"), ("source", ""), ("source", "x" * 121)]}
    kind = [("kind", "a\0"), ("kind", "A"), ("kind", "")] if name == "activity" else [("status", "nothing")]
    for parameter, value in [*BAD_PARAMETERS, *more.get(name, kind)]:
        answer = await admin.call("GET", f"/{name}", params={parameter: value})
        assert answer.status_code in (400, 422), (parameter, value, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"][0]["pointer"] == f"?{parameter}"


async def test_what_is_not_there_is_404(admin: Administering, room: ListedRoom) -> None:
    none = uuid4()
    for method, path in (
        ("GET", "/instances/nowhere"),
        ("GET", "/instances/nowhere/sources"),
        ("GET", "/instances/nowhere/definitions"),
        ("GET", "/instances/nowhere/channels"),
        ("GET", f"/deliveries/{none}"),
        ("GET", f"/backlog/{none}"),
        ("GET", f"/backlog/{none}/payload"),
        ("GET", f"/cycles/{none}"),
        ("GET", f"/cycles/{none}/messages"),
        ("GET", "/stats?room=nowhere"),
        ("GET", "/messages?room=nowhere"),
        ("POST", f"/sources/{none}/reveal"),
        ("POST", f"/channels/{none}/reveal"),
        ("GET", "/nowhere"),
        ("GET", "/instances/"),
        ("GET", "/../../etc/passwd"),
        ("GET", "/"),
    ):
        answer = await admin.call(method, path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 404


async def test_ids_and_slugs_of_another_shape_are_422(admin: Administering) -> None:
    for path in ("/backlog/1", "/cycles/%00", "/instances/UPPER", "/instances/a%00", "/instances/" + "x" * 64):
        answer = await admin.call("GET", path)
        assert answer.status_code == 422, path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_other_methods_are_405(admin: Administering) -> None:
    for method, path in (("PUT", "/instances"), ("DELETE", "/backlog"), ("GET", "/apply"), ("PATCH", "/stats")):
        answer = await admin.call(method, path)
        assert answer.status_code == 405
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["allow"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_database_that_is_away_is_503(room_parts: Parts, method: str) -> None:
    dsn = room_parts.create_database()
    try:
        async with opened(dsn, connect_timeout=1.0) as world:
            room = await world.listed("away")
            room_parts.drop_database(dsn)
            path = "/instances" if method == "GET" else f"/sources/{room.source_id}/reveal"
            answer = await world.call(method, path)
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
            assert TOKENS["operator"] not in answer.text
    finally:
        room_parts.drop_database(dsn)


def _fuzzed() -> list[tuple[str, list[str]]]:
    """Every GET of the API that ends, with the names of its query parameters, out of its own description."""
    return [
        (path, [one["name"] for one in methods["get"].get("parameters", ()) if one["in"] == "query"])
        for path, methods in build().openapi()["paths"].items()
        if "get" in methods and "text/event-stream" not in methods["get"]["responses"]["200"]["content"]
    ]


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
HOSTILE = (
    TEXT
    | st.sampled_from(["1", "50", "matched", "pending", "crm", "lists", "2026-01-01T00:00:00Z", "%", "\0", "9" * 30])
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
    | st.integers().map(str)
)


@pytest.mark.parametrize(("path", "names"), _fuzzed(), ids=[path for path, _ in _fuzzed()])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_no_parameter_breaks_a_get(
    admin: Administering, room: ListedRoom, path: str, names: list[str], data: st.DataObject
) -> None:
    parameters = data.draw(st.dictionaries(st.sampled_from([*names, "unknown"]), HOSTILE, max_size=4))
    parts = []
    for part in path.removeprefix("/api/v1").split("/"):
        value = part
        if part.startswith("{"):
            value = data.draw(st.sampled_from([room.slug, str(room.event_id), str(room.cycle_id)]) | TEXT)
        parts.append("".join(f"%{byte:02X}" for byte in value.encode()) if part.startswith("{") else part)
    answer = await admin.call("GET", "/".join(parts), params=parameters)
    assert answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == ("application/json" if answer.is_success else "application/problem+json")


@pytest.fixture(scope="module")
def many(room_parts: Parts) -> Iterator[tuple[str, ListedRoom]]:
    """A database in which one of twenty rooms has a twentieth of some thousand rows of every list."""
    dsn = room_parts.create_database()
    yield dsn, asyncio.run(_fill(dsn))
    room_parts.drop_database(dsn)


async def _fill(dsn: str) -> ListedRoom:
    async with opened(dsn) as world:
        room = await world.listed("big")
        others = [(await world.listed(f"small-{number}")) for number in range(19)]
        ids = [one.instance_id for one in (room, *others)]
        sources = [one.source_id for one in (room, *others)]
        definitions = [one.definition_id for one in (room, *others)]
        pick = "(%s::uuid[])[1 + n %% 20]"
        when = "now() - make_interval(secs => n)"
        for statement, parameters in (
            (
                "insert into room_cycles (id, instance_id, conversation_id, epoch, reason, status, worker, finished_at,"
                f" started_at) select gen_random_uuid(), {pick}, gen_random_uuid(), 1, 'pending', 'succeeded', 'w',"
                f" now(), {when} from generate_series(1, 6000) n",
                [ids],
            ),
            (
                "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body,"
                f" verified, received_at, matched_at) select gen_random_uuid(), {pick}, {pick}, {pick},"
                f" gen_random_uuid(), repeat('x', 500)::bytea, true, now(), {when} from generate_series(1, 6000) n",
                [ids, sources, definitions],
            ),
            (
                "insert into webhook_deliveries (received_at, id, source_id, instance_id, outcome, size, topic,"
                f' "partition", "offset") select {when}, gen_random_uuid(), {pick}, {pick},'
                " (array['matched', 'no_match'])[1 + n %% 2], 1, 't', 0, n from generate_series(1, 20000) n",
                [sources, ids],
            ),
            (
                "insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, received_at)"
                f" select gen_random_uuid(), {pick}, 'local', 'me', 'text', n::text, {when}"
                " from generate_series(1, 6000) n",
                [ids],
            ),
            (
                "insert into outbound_messages (id, instance_id, channel, target, seq, text, created_at)"
                f" select gen_random_uuid(), {pick}, 'local', 'me', n, repeat('x', 300), {when}"
                " from generate_series(1, 6000) n",
                [ids],
            ),
            (
                "insert into room_activity_log (id, instance_id, log_date, kind, content, occurred_at)"
                f" select gen_random_uuid(), {pick}, current_date, 'error', repeat('x', 100), {when}"
                " from generate_series(1, 6000) n",
                [ids],
            ),
        ):
            await world.query(statement, *parameters)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute("vacuum analyze")
        return room


@pytest.mark.parametrize("scope", ["all", "room", "source", "outcome"])
@pytest.mark.parametrize("name", LISTS)
async def test_a_page_reads_an_index(many: tuple[str, ListedRoom], name: ListName, scope: str) -> None:
    dsn, room = many
    if scope in ("source", "outcome") and name != "deliveries":
        return
    scopes: dict[str, dict[str, object]] = {
        "all": {},
        "room": {"room": room.instance_id},
        "source": {"source": [room.source_id]},
        "outcome": {"outcome": "no_match"},
    }
    filters = scopes[scope]
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as conn:
        for after in (None, await _middle(conn, name, filters)):
            plan = await _plan(conn, name, filters, after)
            assert "Seq Scan" not in _scans(plan, LISTINGS[name]), plan


async def _middle(conn: Any, name: ListName, filters: dict[str, object]) -> tuple[Any, ...]:
    _, key = await listings.page(conn, name, filters, after=None, limit=150)
    assert key is not None
    return key


class _Explaining:
    """A connection that asks for the plan of the statement it is given."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.plan = ""

    async def execute(self, statement: str, parameters: dict[str, object]) -> Any:
        cursor = await self._conn.execute(f"explain (costs off) {statement}", parameters)
        self.plan = "\n".join([row["QUERY PLAN"] for row in await cursor.fetchall()])
        return await self._conn.execute("select 1 as one where false")


async def _plan(conn: Any, name: ListName, filters: dict[str, object], after: tuple[Any, ...] | None) -> str:
    explaining: Any = _Explaining(conn)
    await listings.page(explaining, name, filters, after=after, limit=50)
    return str(explaining.plan)


def _scans(plan: str, listing: listings.Listing) -> str:
    """The plan's lines about the list's own table, not the small ones that are joined; and sorts of all its rows."""
    table = listing.select.partition(" from ")[2].split()[0]
    return "\n".join(line for line in plan.splitlines() if table in line or line.strip().startswith("Sort"))
