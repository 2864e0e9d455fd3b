"""A world for admin: its API in this process on a real database, callers of both roles, rows to look at."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import httpx
import psycopg
import uvicorn
from fastapi import FastAPI
from psycopg.rows import dict_row
from pydantic import SecretStr

from room_admin.answers import Answers
from room_admin.api import build
from room_admin.apply import Applier, Urls
from room_admin.backtest import Backtest
from room_admin.deliveries import Deliveries, Records, Sender
from room_admin.feed import Feed
from room_admin.routes.definitions import Tester
from room_common.crypto import Keyring
from room_common.domain.tokens import TokenKeys, token_digest
from room_common.identity import new_id
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_testing.answering_llm import AnsweringLlm
from room_testing.kept_records import KeptRecords

PUBLIC_URL = "https://hooks.example.com"
TOKENS = {"operator": "operator-" + "0" * 24, "viewer": "viewer-" + "1" * 24}
KEYRING = Keyring("k1", {"k1": b"\x01" * 32})


def room_document(slug: str = "desk", **changes: object) -> dict[str, Any]:
    """A room document with two sources, three definitions and a channel."""
    definition = {"name": "won", "match": "a deal was won", "interpret": "tell the human", "priority": 10}
    document: dict[str, Any] = {
        "version": 1,
        "name": "Desk",
        "slug": slug,
        "mandate": "Watch.",
        "timezone": "Europe/Rome",
        "channel": {"type": "local", "target": "you"},
        "sources": [
            {"name": "crm", "type": "hubspot", "secrets": [{"env": "A"}], "definitions": [definition]},
            {
                "name": "ci",
                "type": "generic",
                "definitions": [definition | {"name": "broken"}, definition | {"name": "slow", "priority": 20}],
            },
        ],
    }
    return document | changes


def apply_body(document: Mapping[str, Any], secret: str = "secret-1", *, dry_run: bool = False) -> dict[str, Any]:
    """The body of ``POST /apply``; sources that have references all get the same secret."""
    secrets = {one["name"]: [secret] * len(one["secrets"]) for one in document["sources"] if one.get("secrets")}
    return {"room": dict(document), "secrets": secrets, "dry_run": dry_run}


@dataclass(frozen=True, slots=True)
class ListedRoom:
    """A room with at least one row in every list."""

    slug: str
    instance_id: UUID
    source_id: UUID
    definition_id: UUID
    channel_id: UUID
    cycle_id: UUID
    event_id: UUID
    delivery_id: UUID

    def in_paths(self) -> dict[str, object]:
        """What stands for its parts in the paths of the API, by the parameters' names."""
        return {name: value for name, value in asdict(self).items() if name != "instance_id"}


class Administering:
    """Use it inside ``opened``. ``records`` stand in for Kafka unless ``kafka``, to read and to send, is given."""

    def __init__(
        self,
        dsn: str,
        database: Database,
        *,
        public_url: str = PUBLIC_URL,
        kafka: tuple[Records, Sender] | None = None,
        keyring: Keyring = KEYRING,
        llm: AnsweringLlm | None = None,
        test_seconds: float = 20,
    ) -> None:
        self.dsn = dsn
        self.database = database
        self.records = KeptRecords()
        self.llm = llm or AnsweringLlm()
        reader, sender = kafka or (self.records, self.records)
        urls = Urls(keyring, TokenKeys((b"\x02" * 32,)), public_url)
        deliveries = Deliveries(database, keyring, reader, sender)
        tester = Tester(Backtest(deliveries, self.llm, calls_at_once=4, seconds=test_seconds))
        self.feed = Feed(database)
        self.app: FastAPI = build(
            database,
            Applier(database, keyring, urls),
            urls,
            deliveries,
            tester,
            self.feed,
            Answers(database, sender),
            keyring,
        )

    def client(self, role: str | None = "operator", **options: Any) -> httpx.AsyncClient:
        """A client of the API; None sends no token, another word than a role is sent as the token."""
        headers = {} if role is None else {"Authorization": f"Bearer {TOKENS.get(role, role)}"}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://room/api/v1", headers=headers, **options
        )

    async def call(self, method: str, path: str, role: str | None = "operator", **options: Any) -> httpx.Response:
        """One request."""
        async with self.client(role) as client:
            return await client.request(method, path, **options)

    async def get(self, path: str, role: str | None = "operator", **parameters: object) -> Any:
        """The JSON of a GET that succeeds."""
        answer = await self.call("GET", path, role, params={name: str(value) for name, value in parameters.items()})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def apply(self, document: Mapping[str, Any], secret: str = "secret-1", *, dry_run: bool = False) -> Any:
        """Apply a document that is accepted."""
        answer = await self.call("POST", "/apply", json=apply_body(document, secret, dry_run=dry_run))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def query(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        """Run one statement in its own transaction."""
        async with await psycopg.AsyncConnection.connect(self.dsn, row_factory=dict_row) as conn:
            cursor = await conn.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def listed(self, slug: str, rows: int = 1) -> ListedRoom:
        """Apply a room and put ``rows`` rows into each of its lists, some of one time; payloads say "private"."""
        await self.apply(room_document(slug))
        [found] = await self.query(
            "select i.id, s.id as source_id, d.id as definition_id, c.id as channel_id from instances i"
            " join event_sources s on s.instance_id = i.id and s.name = 'crm'"
            " join event_definitions d on d.event_source_id = s.id"
            " join instance_channels c on c.instance_id = i.id where i.slug = %s",
            slug,
        )
        room = ListedRoom(
            slug,
            found["id"],
            found["source_id"],
            found["definition_id"],
            found["channel_id"],
            new_id(),
            new_id(),
            new_id(),
        )
        for first, second in ((room, None), *((room, n) for n in range(1, rows))):
            await self._rows(first, second)
        return room

    async def _rows(self, room: ListedRoom, number: int | None) -> None:
        cycle = room.cycle_id if number is None else new_id()
        event = room.event_id if number is None else new_id()
        delivery = room.delivery_id if number is None else new_id()
        # Three rows share each time, so that pages have to break ties.
        age = f"now() - interval '{(number or 0) // 3} seconds' - interval '1 minute'"
        statements: Sequence[tuple[str, Sequence[object]]] = (
            (
                "insert into room_cycles (id, instance_id, conversation_id, epoch, reason, status, worker, finished_at,"
                f" started_at) values (%s, %s, %s, 1, 'pending', 'succeeded', 'w', now(), date_trunc('second', {age}))",
                (cycle, room.instance_id, str(cycle)),
            ),
            (
                "insert into cycle_messages (cycle_id, seq, role, content) values (%s, 1, 'user', %s)",
                (cycle, '{"role": "user", "content": "private"}'),
            ),
            (
                "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body,"
                " content_type, headers, verified, cycle_id, received_at, matched_at, notes)"
                f" values (%s, %s, %s, %s, %s, %s, 'application/json', '{{\"x\": \"private\"}}', true, %s, now(),"
                f" date_trunc('second', {age}), 'private')",
                (event, room.instance_id, room.source_id, room.definition_id, delivery, b'{"a": "private"}', cycle),
            ),
            (
                "insert into webhook_deliveries (received_at, id, source_id, instance_id, outcome, definition_id,"
                ' verdicts, size, topic, "partition", "offset") values'
                f" (date_trunc('second', {age}), %s, %s, %s, 'matched', %s, '[\"private\"]', 1, 't', 0, 0)",
                (delivery, room.source_id, room.instance_id, room.definition_id),
            ),
            (
                "insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, received_at)"
                f" values (%s, %s, 'local', 'private', 'private', %s, date_trunc('second', {age}))",
                (new_id(), room.instance_id, str(new_id())),
            ),
            (
                "insert into outbound_messages (id, instance_id, cycle_id, channel, target, seq, text, created_at)"
                f" values (%s, %s, %s, 'local', 'private', %s, 'private', date_trunc('second', {age}))",
                (new_id(), room.instance_id, cycle, number or 0),
            ),
            (
                "insert into room_activity_log (id, instance_id, log_date, kind, content, occurred_at)"
                f" values (%s, %s, current_date, 'error', 'something', date_trunc('second', {age}))",
                (new_id(), room.instance_id),
            ),
        )
        for statement, parameters in statements:
            await self.query(statement, *parameters)


async def add_callers(world: Administering) -> None:
    """Make the two callers of ``TOKENS``, once."""
    for role, token in TOKENS.items():
        await world.query(
            "insert into api_tokens (sha256, name, role) values (%s, %s, %s) on conflict do nothing",
            token_digest(token),
            f"the {role}",
            role,
        )


@asynccontextmanager
async def opened(
    dsn: str,
    *,
    public_url: str = PUBLIC_URL,
    kafka: tuple[Records, Sender] | None = None,
    keyring: Keyring = KEYRING,
    llm: AnsweringLlm | None = None,
    test_seconds: float = 20,
    **timeouts: float,
) -> AsyncIterator[Administering]:
    """The API on a database with the current schema. ``timeouts`` are fields of ``DatabaseSettings``."""
    database = Database(DatabaseSettings.model_validate({"dsn": SecretStr(dsn), **timeouts}))
    await database.start()
    try:
        world = Administering(
            dsn, database, public_url=public_url, kafka=kafka, keyring=keyring, llm=llm, test_seconds=test_seconds
        )
        await add_callers(world)
        await world.feed.start()
        yield world
        await world.feed.stop()
    finally:
        await database.stop()


@contextmanager
def served(
    dsn: str, public_url: str, *, records: KeptRecords | None = None, llm: AnsweringLlm | None = None
) -> Iterator[str]:
    """The API behind a real HTTP server in a thread of its own; gives its address."""
    kafka = None if records is None else (records, records)
    started: Future[tuple[str, uvicorn.Server]] = Future()

    async def serve() -> None:
        async with opened(dsn, public_url=public_url, kafka=kafka, llm=llm) as world:
            listener = socket.create_server(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(world.app, log_config=None, lifespan="off"))
            started.set_result((f"http://127.0.0.1:{listener.getsockname()[1]}", server))
            await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="served-admin", daemon=True)
    thread.start()
    url, server = started.result(30)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(30)


@dataclass(frozen=True, slots=True)
class Received:
    """A request that the stand-in for ingest took."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@contextmanager
def receiver() -> Iterator[tuple[str, list[Received]]]:
    """A stand-in for ingest, which says ok to every POST: its address and what it took."""
    taken: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ok":true}')

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="receiver", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
