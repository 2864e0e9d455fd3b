"""Server time of every list and page with many deliveries, beside the queries alone (``make bench-panel``).

A database is filled: deliveries of the last five days for ten rooms, a tenth as many rows in each other list. Every GET
route of the API and the panel is asked in this process, without a network, as an operator: median of the time from the
request to the end of the answer. Beside it the same statements with the same parameters, sent over one connection with
nothing around them: the floor of any server that shows these rows. Streams and static files are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx
import psycopg
from psycopg.rows import dict_row

from room_admin.panel.sessions import COOKIE, digest
from room_common.domain.tokens import token_digest
from room_common.postgres import panel_sessions
from room_testing.administering import TOKENS, Administering, ListedRoom, opened
from room_testing.api_fuzz import lift_limits
from room_testing.parts import Parts, choose
from room_testing.routes import walk
from room_testing.statements import Statement, fill, recorded

LIMIT_MS = 200.0
FILTERED = (
    "/api/v1/deliveries?room={slug}",
    "/api/v1/deliveries?source=crm",
    "/api/v1/deliveries?outcome=bad_signature",
    "/api/v1/deliveries?room={slug}&outcome=bad_signature&limit=500",
    "/api/v1/backlog?status=failed",
    "/api/v1/messages?status=failed",
    "/api/v1/cycles?status=failed",
    "/api/v1/activity?kind=error",
    "/api/v1/stats?room={slug}",
    "/panel/deliveries?room={slug}&outcome=matched",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds of a request and of its statements alone, and how many those were."""

    path: str
    status: int
    server: float
    plain: float
    statements: int


def paths(world: Administering) -> Iterator[str]:
    """Every list and page; streams have no end, and leading on is no page."""
    for route in walk(world.app.routes):
        if route.method == "GET" and not route.path.endswith("/feed") and route.path not in ("/", "/panel"):
            yield route.path


async def ask(client: httpx.AsyncClient, path: str, tries: int) -> tuple[int, float, list[Statement]]:
    """Status and median milliseconds of a GET, and the statements it read with."""
    times, kept, status = [], [], 0
    for number in range(tries + 1):
        with recorded() as statements:
            started = time.perf_counter()
            answer = await client.get(path)
            took = time.perf_counter() - started
        kept, status = [one for one in statements if one.reads], answer.status_code
        if number:  # the first one warms caches up
            times.append(took * 1000)
    return status, statistics.median(times), kept


async def plain(dsn: str, statements: Sequence[Statement], tries: int) -> float:
    """Median milliseconds of statements alone."""
    times = []
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as conn:
        for number in range(tries + 1):
            started = time.perf_counter()
            for statement in statements:
                await (await conn.execute(statement.text, statement.parameters)).fetchall()
            if number:
                times.append((time.perf_counter() - started) * 1000)
            await conn.rollback()
    return statistics.median(times)


async def measure(world: Administering, room: ListedRoom, tries: int) -> list[Measured]:
    """Every path."""
    session = secrets.token_urlsafe(32)
    async with world.database.transaction() as conn:
        await panel_sessions.open_session(conn, digest(session), token_digest(TOKENS["operator"]))
    values = {
        "slug": room.slug,
        "name": "crm",
        "source_id": room.source_id,
        "definition_id": room.definition_id,
        "delivery_id": room.delivery_id,
        "event_id": room.event_id,
        "cycle_id": room.cycle_id,
    }
    [reply] = await world.query("select id from room_inbox where instance_id = %s limit 1", room.instance_id)
    [message] = await world.query("select id from outbound_messages where cycle_id = %s limit 1", room.cycle_id)
    values |= {"reply_id": reply["id"], "message_id": message["id"]}
    found = []
    transport = httpx.ASGITransport(world.app)
    headers = {"Authorization": f"Bearer {TOKENS['operator']}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://room", headers=headers, cookies={COOKIE: session}
    ) as client:
        for template in (*paths(world), *FILTERED):
            path = template.format(**values)
            status, server, statements = await ask(client, path, tries)
            found.append(Measured(template, status, server, await plain(world.dsn, statements, tries), len(statements)))
    return found


async def run(deliveries: int, tries: int) -> int:
    """Fill, measure, print; returns how many took too long."""
    parts = Parts(choose(os.environ | {"ROOM_TEST_PARTS": "wheels"}, lambda: "not wanted"))
    try:
        async with opened(parts.create_database()) as world:
            lift_limits(world)
            room = await world.listed("bench")
            world.records.keep(room.delivery_id)
            started = time.monotonic()
            fill(world.dsn, room, deliveries=deliveries, others=deliveries // 10)
            print(f"{deliveries:,} deliveries, filled in {time.monotonic() - started:.0f} s\n", flush=True)
            measured = await measure(world, room, tries)
    finally:
        parts.close()
    print(
        "| path | status | server ms | plain queries ms | ratio | statements |\n| --- | --- | --- | --- | --- | --- |"
    )
    for one in sorted(measured, key=lambda one: -one.server):
        ratio = f"{one.server / one.plain:.1f}" if one.statements else "-"
        print(f"| `{one.path}` | {one.status} | {one.server:.1f} | {one.plain:.1f} | {ratio} | {one.statements} |")
    slow = [one.path for one in measured if one.server > LIMIT_MS or one.status >= 500]
    print(f"\n{len(measured)} paths, {len(slow)} over {LIMIT_MS:.0f} ms {slow or ''}")
    return len(slow)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description="Measure the lists and pages of admin.")
    parser.add_argument("--deliveries", type=int, default=1_000_000)
    parser.add_argument("--tries", type=int, default=9)
    arguments = parser.parse_args()
    sys.exit(1 if asyncio.run(run(arguments.deliveries, arguments.tries)) else 0)


if __name__ == "__main__":
    main()
