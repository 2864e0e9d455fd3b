"""How long things take from end to end at a steady rate (``make bench-latency``).

Webhooks and people's replies are posted to a real ingest at fixed times; matcher, scheduler, room-runner and outbound
are one process each, with their default settings. A model that answers at once (every webhook matches; a cycle tells
the human what it was given, marks its events, and ends) and the human's inbox are in this process. PostgreSQL tells at
the commit when a row was written. Everything shares the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from aiohttp import web

from room_local.parts.addresses import HOST, free_port
from room_local.parts.kafka_jars import available
from room_testing.ingest_process import ingest_settings
from room_testing.matching import Matching, SeededSource
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess
from room_testing.running import SeededRoom, calls, events_in, says
from room_testing.scheduling import Scheduling, SeededChannel

LAYOUT = """
    create function bench_event() returns trigger language plpgsql as $$
    begin
        perform pg_notify('bench', 'pending ' || (convert_from(new.raw_body, 'UTF8')::json ->> 'number'));
        return null;
    end $$;
    create function bench_reply() returns trigger language plpgsql as $$
    begin
        perform pg_notify('bench', new.status || ' ' || new.text);
        return null;
    end $$;
    create trigger bench_event after insert on event_backlog for each row execute function bench_event();
    create trigger bench_reply after update on room_inbox for each row
        when (new.status = 'taken') execute function bench_reply();
    create index on event_backlog (received_at);
"""
NUMBER = re.compile(r'"number": "(e\d+)"')
SAID = re.compile(r"\be\d+\b")
PADDING = "x" * 1500


@dataclass
class Times:
    """When each webhook (``e1``, ``e2``, ...) and reply (``r1``, ...) was where, in monotonic seconds."""

    posted: dict[str, float] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    delivered: dict[str, float] = field(default_factory=dict)


class Peers:
    """The model provider and the inbox."""

    def __init__(self, times: Times) -> None:
        self.url = ""
        self._times = times
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/messages", self._deliver)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0, backlog=1024).start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        said = self._supervise(body["messages"]) if "tools" in body else says("yes")
        message = {"role": "assistant", **said}
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in said else "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
        )

    def _supervise(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        done = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or []]
        numbers = NUMBER.findall(str(messages[1]["content"]))
        if not done:
            now = time.monotonic()
            for number in numbers:
                self._times.told.setdefault(number, now)
            return calls(("send_message_to_human", {"message": f"seen: {' '.join(numbers)}"}))
        if (events := events_in(messages)) and "mark_events_completed" not in done:
            return calls(("mark_events_completed", {"event_ids": events}))
        return says("NO_MESSAGE")

    async def _deliver(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        now = time.monotonic()
        for number in SAID.findall(body["text"]):
            self._times.delivered.setdefault(number, now)
        return web.json_response({"message_id": body["id"]})


async def listen(dsn: str, times: Times) -> None:
    """Note what PostgreSQL tells, for ever."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("listen bench")
        async for notice in conn.notifies():
            what, _, number = notice.payload.partition(" ")
            (times.pending if what == "pending" else times.taken).setdefault(number, time.monotonic())


async def post(session: aiohttp.ClientSession, url: str, body: Mapping[str, object], times: Times, number: str) -> None:
    """One webhook or reply."""
    times.posted[number] = time.monotonic()
    async with session.post(url, json=body) as answer:
        if answer.status != 200:
            raise RuntimeError(f"ingest answered {answer.status}")


async def feed(
    port: int,
    sources: Sequence[SeededSource],
    channels: Sequence[SeededChannel],
    times: Times,
    rates: tuple[float, float],
    seconds: float,
) -> None:
    """Post at fixed times, to rooms by chance; a late answer delays nothing."""
    chance, base = random.Random(1), f"http://{HOST}:{port}"
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:

        async def stream(kind: str, rate: float) -> None:
            began = time.monotonic()
            for turn in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, began + turn / rate - time.monotonic()))
                number, place = f"{kind}{turn}", chance.randrange(len(sources))
                if kind == "e":
                    url = f"{base}/webhooks/{sources[place].token}"
                    body = {"number": number, "name": "Ada", "padding": PADDING}
                else:
                    url = f"{base}/channels/local/{channels[place].token}"
                    body = {"sender": "me", "text": number}
                group.create_task(post(session, url, body, times, number))

        group.create_task(stream("e", rates[0]))
        group.create_task(stream("r", rates[1]))


def services(parts: Parts, world: Matching, dsn: str, peers: Peers, ingest_port: int) -> list[ServiceProcess]:
    """One process of each, as they are by default."""
    kafka = {"ROOM_KAFKA__BOOTSTRAP_SERVERS": world.bootstrap, "ROOM_LOG__LEVEL": "warning"}
    kafka["ROOM_KAFKA__IDEMPOTENCE"] = str(world.idempotence).lower()
    folder = Path(tempfile.mkdtemp(prefix="room-bench-"))
    # Of the worlds' own settings only addresses and keys: they hurry.
    common = {
        name: value
        for name, value in world.environment(f"{peers.url}/v1").items()
        if not name.startswith(("ROOM_MATCHER__", "ROOM_KAFKA__"))
    }
    made = {
        "room_ingest": ingest_settings(world.bootstrap, dsn, ingest_port),
        "room_matcher": common | {"ROOM_REDIS__URL": parts.redis_url()},
        "room_scheduler": common,
        "room_runner": common,
        "room_outbound": common | {"ROOM_OUTBOUND__LOCAL_INBOX_URL": peers.url},
    }
    return [ServiceProcess(package, kafka | settings, folder) for package, settings in made.items()]


async def seeded(dsn: str, world: Matching, rooms: int) -> tuple[list[SeededSource], list[SeededChannel]]:
    """Rooms with a source and a channel each."""
    scheduling = Scheduling(dsn, world.bootstrap)
    sources, channels = [], []
    for _ in range(rooms):
        source = await world.source(await world.instance(budget=None))
        sources.append(source)
        channels.append(await scheduling.channel(SeededRoom(source.instance_id, source.id, source.definitions[0])))
    await world.query("update instance_room set outbound_channel = 'local', outbound_target = 'me'")
    await world.query("analyze")
    return sources, channels


async def measured(parts: Parts, rooms: int, rates: tuple[float, float], seconds: float, warm: float) -> Times:
    """One run; the times of what was posted after ``warm``."""
    dsn, times = parts.create_database(), Times()
    world = Matching(dsn, parts.kafka_bootstrap(), idempotence=parts.choice.kafka != "wheels")
    peers, port = Peers(times), free_port()
    await world.open()
    await peers.start()
    with psycopg.connect(dsn) as conn:
        conn.execute(LAYOUT)
    sources, channels = await seeded(dsn, world, rooms)
    started = services(parts, world, dsn, peers, port)
    listening = asyncio.create_task(listen(dsn, times))
    try:
        for service in started:
            service.launch()
        for service in started:
            await asyncio.to_thread(service.wait_ready)
        began = time.monotonic()
        await feed(port, sources, channels, times, rates, warm + seconds)
        await _settled(times)
    finally:
        for service in started:
            service.kill()
        listening.cancel()
        await peers.stop()
        await world.close()
    times.posted = {number: at for number, at in times.posted.items() if at >= began + warm}
    return times


async def _settled(times: Times) -> None:
    """Wait until everything has arrived. Raises ``TimeoutError``."""
    async with asyncio.timeout(120):
        while any(number not in (times.delivered if number[0] == "e" else times.taken) for number in times.posted):
            await asyncio.sleep(0.5)


def _show(name: str, waits: Sequence[float]) -> None:
    ordered = sorted(waits)
    at = {share: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99)}
    print(
        f"{name}: p50 {at[0.5]:.3f} s, p99 {at[0.99]:.3f} s, longest {ordered[-1]:.3f} s ({len(ordered)})", flush=True
    )


def main() -> None:
    """Print one line for each stretch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0, help="webhooks a second")
    parser.add_argument("--replies", type=float, default=5.0, help="replies a second")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warm", type=float, default=40.0)
    given = parser.parse_args()
    parts = Parts(choose(os.environ, available))
    print(f"{parts.choice.describe()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    try:
        found = asyncio.run(measured(parts, given.rooms, (given.rate, given.replies), given.seconds, given.warm))
    finally:
        parts.close()
    events = [number for number in found.posted if number[0] == "e"]
    replies = [number for number in found.posted if number[0] == "r"]
    _show("webhook to pending", [found.pending[one] - found.posted[one] for one in events])
    _show("reply to cycle start", [found.taken[one] - found.posted[one] for one in replies])
    _show("pending to message", [found.delivered[one] - found.pending[one] for one in events])
    _show("  of it pending to the first model call", [found.told[one] - found.pending[one] for one in events])
    _show("  and from there to the inbox", [found.delivered[one] - found.told[one] for one in events])
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
