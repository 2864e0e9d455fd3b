"""Who may do what: every route of the API is in the table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from room_admin.server import Bootstrap
from room_common.domain.tokens import token_digest
from room_common.postgres import access
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.administering import Administering, ListedRoom, add_callers, apply_body, opened, room_document
from room_testing.routes import walk

pytestmark = pytest.mark.integration

Role = Literal["viewer", "operator"]


@dataclass(frozen=True, slots=True)
class Route:
    """``private`` are the fields of a row that viewers must not get, ``body`` is what is posted.

    ``status`` is what those get who may, in a room that is neither parked nor has tools.
    """

    method: str
    path: str
    role: Role
    private: frozenset[str] = frozenset()
    body: Mapping[str, Any] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


ANY = {"If-Match": "*"}
ROUTES = (
    Route("POST", "/apply", "operator"),
    Route("GET", "/instances", "viewer"),
    Route("POST", "/instances", "operator", body={"name": "n", "slug": "desk"}, status=201),
    Route("GET", "/instances/{slug}", "viewer", frozenset({"target"})),
    Route("GET", "/instances/{slug}/prompts", "operator"),
    Route("PUT", "/instances/{slug}/prompts", "operator", body={"sections": []}, headers=ANY),
    Route("PUT", "/instances/{slug}/channel", "operator", body={"type": "local", "target": "you"}, headers=ANY),
    Route("POST", "/instances/{slug}/channel/test", "operator", body={}),
    Route("POST", "/instances/{slug}/answer", "operator", body={"text": "yes"}),
    Route("PUT", "/instances/{slug}/tools/{name}", "operator", body={"type": "python"}, headers=ANY),
    Route("DELETE", "/instances/{slug}/tools/{name}", "operator"),
    Route("POST", "/instances/{slug}/sources", "operator", body={"name": "new", "type": "generic"}, status=201),
    Route("GET", "/sources/{source_id}", "viewer"),
    Route("GET", "/definitions/{definition_id}", "viewer"),
    Route("GET", "/instances/{slug}/sources", "viewer"),
    Route("GET", "/instances/{slug}/definitions", "viewer"),
    Route("GET", "/instances/{slug}/channels", "viewer"),
    Route("GET", "/instances/{slug}/tools", "viewer"),
    Route("GET", "/instances/{slug}/export", "operator"),
    Route("POST", "/instances/{slug}/tools/{name}/confirm", "operator", status=404),
    Route("POST", "/instances/{slug}/tick", "operator"),
    Route("POST", "/instances/{slug}/resume", "operator", status=409),
    Route("POST", "/sources/{source_id}/reveal", "operator"),
    Route("POST", "/channels/{channel_id}/reveal", "operator"),
    Route("POST", "/sources/{source_id}/rotate-token", "operator", body={}),
    Route("PATCH", "/sources/{source_id}", "operator", body={"enabled": True}),
    Route("PATCH", "/definitions/{definition_id}", "operator", body={"enabled": True}),
    Route("PATCH", "/instances/{slug}", "operator", body={"enabled": True}),
    Route("PUT", "/sources/{source_id}/definitions/order", "operator", body={"definitions": []}),
    Route("POST", "/messages/{message_id}/resend", "operator"),
    Route("GET", "/deliveries", "viewer", frozenset({"verdicts"})),
    Route("GET", "/deliveries/{delivery_id}", "viewer", frozenset({"verdicts"})),
    Route("GET", "/deliveries/{delivery_id}/life", "operator"),
    Route("GET", "/deliveries/{delivery_id}/payload", "operator"),
    Route("POST", "/deliveries/{delivery_id}/replay", "operator", body={}),
    Route("POST", "/definitions/test", "operator", body={"definition": {"name": "n", "match": "m"}, "source": "crm"}),
    Route("GET", "/backlog", "viewer", frozenset({"notes", "headers"})),
    Route("GET", "/backlog/{event_id}", "viewer", frozenset({"notes", "headers"})),
    Route("GET", "/backlog/{event_id}/payload", "operator"),
    Route("POST", "/backlog/{event_id}/retry", "operator"),
    Route("POST", "/backlog/{event_id}/complete", "operator"),
    Route("POST", "/inbox/{reply_id}/retry", "operator"),
    Route("GET", "/inbox", "viewer", frozenset({"sender", "text"})),
    Route("GET", "/inbox/{reply_id}", "viewer", frozenset({"sender", "text"})),
    Route("GET", "/cycles", "viewer"),
    Route("GET", "/cycles/{cycle_id}", "viewer"),
    Route("GET", "/cycles/{cycle_id}/messages", "operator"),
    Route("GET", "/messages", "viewer", frozenset({"target", "text"})),
    Route("GET", "/messages/{message_id}", "viewer", frozenset({"target", "text"})),
    Route("GET", "/activity", "viewer"),
    Route("GET", "/me", "viewer"),
    Route("GET", "/audit", "operator"),
    Route("GET", "/tokens", "operator"),
    Route("POST", "/tokens", "operator", body={"name": "n", "role": "viewer"}, status=201),
    Route("DELETE", "/tokens/{token_id}", "operator", status=404),
    Route("GET", "/overflow", "viewer"),
    Route("GET", "/stats", "viewer"),
    Route("GET", "/services", "viewer"),
    Route("GET", "/feed", "viewer"),
    Route("GET", "/cycles/{cycle_id}/feed", "operator"),
    # last, in this order: what they delete is used by the routes above
    Route("POST", "/sources/{source_id}/definitions", "operator", body={"name": "n", "match": "m"}, status=201),
    Route("DELETE", "/instances/{slug}/channel", "operator"),
    Route("DELETE", "/definitions/{definition_id}", "operator"),
    Route("DELETE", "/sources/{source_id}", "operator"),
    Route("DELETE", "/instances/{slug}", "operator"),
)
IDS = [f"{route.method} {route.path}" for route in ROUTES]


@pytest.fixture(scope="module")
def room(postgres_dsn: str) -> ListedRoom:
    """One room with rows in every list."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            made = await world.listed("roles")
            # A message that may be sent again, under an id that is known.
            await world.query("update outbound_messages set id = cycle_id, status = 'failed'")
            await world.query("update event_backlog set status = 'failed'")
            (reply,) = await world.query("update room_inbox set status = 'failed', reason = null returning id")
            IDS_OF["reply_id"] = reply["id"]
            return made

    return asyncio.run(make())


IDS_OF: dict[str, UUID] = {}


async def _ask(admin: Administering, route: Route, room: ListedRoom, role: str | None) -> Any:
    ids = {
        **room.in_paths(),
        "name": "crm",
        "message_id": room.cycle_id,
        "token_id": "0" * 16,
        **IDS_OF,
    }
    body = apply_body(room_document(room.slug)) if route.path == "/apply" else route.body
    if route.path.endswith("/order"):
        body = {"definitions": [str(room.definition_id)]}
    admin.records.keep(room.delivery_id)
    if route.path.endswith("/feed"):
        admin.feed.stopping.set()  # a stream ends then, after the states that it begins with
    options = {} if body is None else {"json": body}
    return await admin.call(route.method, route.path.format(**ids), role, headers=route.headers, **options)


def test_the_table_has_every_route(admin: Administering) -> None:
    served = [route for route in walk(admin.app.routes) if not route.path.startswith("/panel/")]
    ours = {(route.method, route.path.removeprefix("/api/v1")) for route in served if route.path.startswith("/api/v1/")}
    assert ours == {(route.method, route.path) for route in ROUTES} | {("GET", "/openapi.json")}
    assert [route.path for route in served if not route.path.startswith("/api/v1/")] == ["/", "/panel"]
    assert [route.path for route in served if not route.described] == ["/api/v1/openapi.json"]


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
async def test_without_a_valid_token_nothing_is_told(admin: Administering, room: ListedRoom, route: Route) -> None:
    for token in (None, "x" * 64, "x" * 513):
        answer = await _ask(admin, route, room, token)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "private" not in answer.text


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
async def test_roles(admin: Administering, room: ListedRoom, route: Route) -> None:
    answer = await _ask(admin, route, room, "viewer")
    if route.role == "operator":
        assert answer.status_code == 403
        assert answer.headers["content-type"] == "application/problem+json"
    else:
        assert answer.status_code == 200
    assert "private" not in answer.text
    full = await _ask(admin, route, room, "operator")
    assert full.status_code == route.status
    if route.private:
        [seen, *_], [all_, *_] = (_rows(one.json()) for one in (answer, full))
        assert set(all_) - set(seen) == route.private


def _rows(body: Any) -> list[dict[str, Any]]:
    return list(body["items"]) if "items" in body else [body]


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic b3A6b3A=", "operator", "Bearer a b", "Bearer \xff\xfe", "Bearer \t"]
)
async def test_malformed_authorization_is_401(admin: Administering, header: str) -> None:
    answer = await admin.call("GET", "/instances", None, headers={b"authorization": header.encode("latin-1")})
    assert answer.status_code == 401


async def test_a_revoked_token_is_401(own_admin: Administering) -> None:
    await own_admin.query("update api_tokens set revoked_at = now() where role = 'viewer'")
    assert (await own_admin.call("GET", "/instances", "viewer")).status_code == 401
    assert (await own_admin.call("GET", "/instances", "operator")).status_code == 200


@pytest.fixture
async def empty(database_dsn: str) -> AsyncIterator[Database]:
    """A database without a caller."""
    database = Database(DatabaseSettings.model_validate({"dsn": database_dsn}))
    await database.start()
    yield database
    await database.stop()


async def _roles(dsn: str) -> list[tuple[str, str]]:
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as conn:
        rows = await (await conn.execute("select name, role from api_tokens where revoked_at is null")).fetchall()
    return [(row["name"], row["role"]) for row in rows]


async def test_the_bootstrap_token_opens_an_empty_installation_once(
    empty: Database, database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "room_admin")
    await Bootstrap(empty, None).start()
    assert await _roles(database_dsn) == []
    for _ in range(2):
        await Bootstrap(empty, token_digest("the-first-token")).start()
    assert await _roles(database_dsn) == [("bootstrap", "operator")]
    assert [record.levelname for record in caplog.records] == ["INFO"]
    await Bootstrap(empty, token_digest("another-token")).start()
    assert await _roles(database_dsn) == [("bootstrap", "operator")]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "token" not in "".join(
        record.getMessage() for record in caplog.records if "the-first" in record.getMessage()
    )


async def test_a_viewer_does_not_keep_the_bootstrap_token_out(empty: Database, database_dsn: str) -> None:
    async with empty.transaction() as conn:
        await conn.execute(
            "insert into api_tokens (sha256, name, role) values (%s, 'v', 'viewer')", (token_digest("viewer"),)
        )
    await Bootstrap(empty, token_digest("the-first-token")).start()
    assert sorted(await _roles(database_dsn)) == [("bootstrap", "operator"), ("v", "viewer")]


async def test_a_revoked_operator_does_not_come_back(empty: Database, database_dsn: str) -> None:
    digest = token_digest("the-first-token")
    await Bootstrap(empty, digest).start()
    async with empty.transaction() as conn:
        await conn.execute("update api_tokens set revoked_at = now()")
    await Bootstrap(empty, digest).start()
    assert await _roles(database_dsn) == []
    async with empty.transaction() as conn:
        assert await access.bootstrap(conn, token_digest("a-new-token"))


async def test_callers_of_the_table_exist(own_admin: Administering) -> None:
    await add_callers(own_admin)
    assert len(await own_admin.query("select 1 as one from api_tokens")) == 2
