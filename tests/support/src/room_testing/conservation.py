"""Nothing appears and nothing disappears: what ingest answered 200 is the sum of the outcomes, whatever is killed.

``python -m room_testing.conservation --deliveries 100000 --seed 1`` posts mixed deliveries to a real ingest while the
broker, PostgreSQL, Redis and the matcher are each killed twice, then compares number by number. Needs Apache Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition

from room_common.contracts.envelope import decode
from room_common.contracts.topics import WEBHOOKS_DEAD, WEBHOOKS_RAW
from room_common.kafka.records import from_consumer
from room_local.parts.addresses import HOST, free_port
from room_local.parts.kafka_jars import available
from room_local.parts.server import Server
from room_testing.ingest_process import ingest_settings
from room_testing.matching import Matching
from room_testing.mixed_traffic import NUMBER, POISON, Delivery, Traffic
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess
from room_testing.scripted_llm import Reply, ScriptedLlm

SENDERS: Final = 48
KILLS_EACH: Final = 2
STALLED_SECONDS: Final = 90.0
NAMED: Final = 20


@dataclass(slots=True)
class Report:
    """What was found. ``problems`` empty: everything is accounted for."""

    table: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    outcomes: int = 0


class Conservation:
    """One run."""

    def __init__(
        self, parts: Parts, folder: Path, *, deliveries: int, seed: int, say: Callable[[str], None] = print
    ) -> None:
        self.parts = parts
        self.folder = folder
        self.count = deliveries
        self.random = random.Random(seed)
        self.seed = seed
        self.say = say
        self.sent: dict[int, Delivery] = {}
        self.answers: dict[int, int] = {}
        self.decided = 0
        self.report = Report()
        self.port = free_port()

    async def run(self) -> Report:
        """Post, kill, wait, compare."""
        self.dsn = self.parts.create_database()
        self.world = Matching(self.dsn, self.parts.kafka_bootstrap(), idempotence=True)
        await self.world.open()
        traffic = Traffic(self.world, self.seed)
        await traffic.seed_database(self.count)
        async with ScriptedLlm(_verdict) as llm:
            llm.error_body = {"message": "flagged", "code": "content_filter"}
            settings = self.world.environment(
                llm.url, ROOM_REDIS__URL=self.parts.redis_url(), ROOM_LOG__LEVEL="warning", ROOM_LLM__MAX_RETRIES="2"
            )
            matcher = ServiceProcess("room_matcher", settings, self.folder)
            given = ingest_settings(
                self.world.bootstrap,
                self.dsn,
                self.port,
                ROOM_INGEST__RATE_PER_TOKEN="0",
                ROOM_LOG__LEVEL="warning",
            )
            ingest = ServiceProcess("room_ingest", given, self.folder)
            try:
                for service in (ingest, matcher):
                    await asyncio.to_thread(service.launch)
                for service in (ingest, matcher):
                    await asyncio.to_thread(service.wait_ready)
                await asyncio.gather(self._post_all(traffic), self._kill_all(matcher), self._watch())
            finally:
                await asyncio.to_thread(matcher.stop)
                await asyncio.to_thread(ingest.stop)
        try:
            await self._compare(traffic)
        finally:
            await self.world.close()
        return self.report

    # -- senders

    async def _post_all(self, traffic: Traffic) -> None:
        numbers = iter(range(self.count))
        await asyncio.gather(*(self._sender(traffic, numbers) for _ in range(SENDERS)))
        self.say(f"   posted {len(self.answers):,}")

    async def _sender(self, traffic: Traffic, numbers: Any) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for number in numbers:
            delivery = self.sent[number] = traffic.make(number)
            while self.answers.get(number) is None:
                try:
                    if connection is None:
                        connection = await asyncio.open_connection(HOST, self.port)
                    status, closes = await _post(*connection, delivery)
                except (OSError, asyncio.IncompleteReadError, ValueError):
                    status, closes = 0, True
                if closes and connection is not None:
                    connection[1].close()
                    connection = None
                self.answers[number] = status  # a request that got no answer is not sent again: it may have arrived
        if connection is not None:
            connection[1].close()

    # -- what goes wrong

    async def _kill_all(self, matcher: ServiceProcess) -> None:
        victims = ["broker", "postgresql", "redis", "matcher"] * KILLS_EACH
        self.random.shuffle(victims)
        for turn, victim in enumerate(victims, 1):
            await self._progress(turn / (len(victims) + 2))
            await asyncio.sleep(self.random.uniform(0, 1))
            self.say(f"   {self._share():4.0%} of the work done: kill -9 {victim}")
            await asyncio.to_thread(self._kill, victim, matcher, self.random.uniform(0.5, 3))
            self.report.kills[victim] += 1

    def _kill(self, victim: str, matcher: ServiceProcess, seconds: float) -> None:
        if victim == "broker":
            broker = self.parts.broker()
            broker.kill()
            time.sleep(seconds)
            broker.heal()
            return
        servers: dict[str, Callable[[], Server]] = {
            "postgresql": self.parts.postgres,
            "redis": self.parts.redis,
            "matcher": lambda: matcher,
        }
        server = servers[victim]()
        server.kill()
        time.sleep(seconds)
        if victim == "matcher":
            matcher.launch()
        else:
            server.start()

    async def _progress(self, share: float) -> None:
        while self._share() < share:
            await asyncio.sleep(0.05)

    def _share(self) -> float:
        return (len(self.answers) + min(self.decided, self.count)) / (2 * self.count)

    # -- until all is decided

    async def _watch(self) -> None:
        """Until nothing changes any more for a while, or everything is there."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < STALLED_SECONDS:
            await asyncio.sleep(0.5)
            try:
                async with asyncio.timeout(10):
                    (row,) = await self.world.query("select count(*)::int as n from webhook_deliveries")
            except (psycopg.Error, TimeoutError):
                continue
            self.decided = row["n"]
            if self.decided != last or len(self.answers) < self.count:
                last, since = self.decided, time.monotonic()
            elif self._all_there() and sum(self.report.kills.values()) == 4 * KILLS_EACH:
                return

    def _all_there(self) -> bool:
        expected = sum(self.sent[number].items for number, status in self.answers.items() if status == 200)
        return self.decided >= expected

    # -- the comparison

    async def _compare(self, traffic: Traffic) -> None:
        report, numbers = self.report, await self._numbers()
        rows: dict[int, list[tuple[int, str]]] = defaultdict(list)
        strangers = 0
        for row in await self.world.query("select id, item, outcome, reason from webhook_deliveries"):
            number = numbers.get(row["id"])
            if number is None:
                strangers += 1
            else:
                rows[number].append((row["item"], row["outcome"]))
        if strangers:
            report.problems.append(f"{strangers} outcomes belong to no delivery")
        table: dict[str, Counter[str]] = defaultdict(Counter)
        missing, wrong = [], []
        for number, delivery in self.sent.items():
            counts = table[delivery.kind]
            found = sorted(rows.get(number, ()))
            if self.answers[number] != 200:
                counts["not 200"] += 1
                report.outcomes -= len(found)
                continue
            counts["200"] += 1
            counts["expected"] += delivery.items
            counts["outcomes"] += len(found)
            report.answered += 1
            if [item for item, _ in found] != list(range(delivery.items)):
                missing.append(number)
            elif not {outcome for _, outcome in found} <= delivery.outcomes:
                wrong.append(f"{number} ({delivery.kind}: {', '.join(outcome for _, outcome in found)})")
        report.outcomes += sum(len(found) for found in rows.values())
        _name(report, "without exactly one outcome for each item", map(self._describe(numbers, rows), missing))
        _name(report, "with an outcome of another kind", wrong)
        await self._backlog(traffic)
        await self._dead()
        self._draw(table)

    def _describe(self, numbers: dict[UUID, int], rows: dict[int, list[tuple[int, str]]]) -> Callable[[int], str]:
        ids = {number: delivery_id for delivery_id, number in numbers.items()}
        return lambda number: (
            f"{number} ({self.sent[number].kind}, id {ids.get(number, 'not in the topic')}, {rows.get(number, [])})"
        )

    async def _backlog(self, traffic: Traffic) -> None:
        (double,) = await self.world.query(
            """
            select count(*)::int as n from (
                select 1 from event_backlog where headers ? 'x-github-delivery'
                group by source_id, headers ->> 'x-github-delivery', raw_body having count(*) > 1) d
            """
        )
        (rows,) = await self.world.query(
            """
            select (select count(*) from event_backlog)::int as events,
                   (select count(*) from webhook_deliveries where outcome = 'matched')::int as matched,
                   (select coalesce(max(n), 0) from (select count(*) n from event_backlog where status = 'pending'
                                                     group by instance_id) c)::int as most
            """
        )
        self.report.table.append(f"backlog rows {rows['events']:,}, matched {rows['matched']:,}, twice {double['n']}")
        if double["n"]:
            self.report.problems.append(f"{double['n']} events are in the backlog twice")
        if rows["events"] != rows["matched"]:
            self.report.problems.append(f"{rows['matched']} matched, but {rows['events']} backlog rows")
        if rows["most"] > 100:
            self.report.problems.append(f"an instance has {rows['most']} pending events")

    async def _dead(self) -> None:
        """Only what its own fault killed is in the dead-letter topic."""
        innocent = [
            message.offset
            async for message in every_record(self.world.bootstrap, WEBHOOKS_DEAD)
            if POISON.encode() not in (message.value or b"")
        ]
        if innocent:
            self.report.problems.append(f"{len(innocent)} deliveries are dead for another's fault")

    async def _numbers(self) -> dict[UUID, int]:
        """The number of each delivery's id, from the records in the topic."""
        numbers: dict[UUID, int] = {}
        async for message in every_record(self.world.bootstrap, WEBHOOKS_RAW):
            envelope = decode(from_consumer(message))
            if (number := envelope.http.get(NUMBER, "")).isdecimal():
                numbers[envelope.id] = int(number)
        return numbers

    def _draw(self, table: dict[str, Counter[str]]) -> None:
        names = ("200", "not 200", "expected", "outcomes")
        lines = [f"{'kind':16}" + "".join(f"{name:>10}" for name in names)]
        total: Counter[str] = Counter()
        for kind in sorted(table):
            lines.append(f"{kind:16}" + "".join(f"{table[kind][name]:10,}" for name in names))
            total.update(table[kind])
        lines.append(f"{'all':16}" + "".join(f"{total[name]:10,}" for name in names))
        self.report.table[:0] = lines
        if total["expected"] != total["outcomes"]:
            self.report.problems.append(f"{total['expected']:,} outcomes expected, {total['outcomes']:,} found")
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.report.kills.items()))
        self.report.table.append(f"killed: {kills}")
        if set(self.report.kills.values()) != {KILLS_EACH} or len(self.report.kills) != 4:
            self.report.problems.append("not everything was killed as often as it should be")


def _verdict(text: str) -> Reply:
    payload, _, criterion = text.rpartition("Criterion:")
    if POISON in payload:
        return 400
    return "yes" if "hot" in criterion and '"hot"' in payload else "no"


def _name(report: Report, what: str, found: Any) -> None:
    names = list(found)
    if names:
        shown = "; ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
        report.problems.append(f"{len(names)} deliveries {what}: {shown}")


async def _post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delivery: Delivery) -> tuple[int, bool]:
    """The status, and whether the connection ends with it."""
    head = [f"POST /webhooks/{delivery.token} HTTP/1.1", "host: x", f"content-length: {len(delivery.body)}"]
    head += [f"{name}: {value}" for name, value in delivery.headers.items()]
    writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + delivery.body)
    async with asyncio.timeout(60):
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
    return int(lines[0].split()[1]), b"connection: close" in lines


async def every_record(bootstrap: str, topic: str) -> Any:
    """Every record of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer._client.force_metadata_update()
        found = await consumer._client._wait_on_metadata(topic)
        places = [TopicPartition(topic, index) for index in sorted(found)]
        consumer.assign(places)
        for place, end in (await consumer.end_offsets(places)).items():
            while await consumer.position(place) < end:
                for messages in (await consumer.getmany(place, timeout_ms=1000)).values():
                    for message in messages:
                        yield message
    finally:
        await consumer.stop()


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="makes traffic and kills repeatable")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    parts = Parts(choose(os.environ | {"ROOM_TEST_PARTS": "apache"}, available))
    print(f"{options.deliveries:,} deliveries, seed {seed}, {parts.choice.describe()}", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="room-conserve-") as folder:
            run = Conservation(
                parts, Path(folder), deliveries=options.deliveries, seed=seed, say=lambda text: print(text, flush=True)
            )
            report = asyncio.run(run.run())
    finally:
        parts.close()
    print("\n".join(report.table))
    for problem in report.problems:
        print(f"WRONG: {problem}")
    verdict = "everything is accounted for" if not report.problems else f"{len(report.problems)} problems (seed {seed})"
    print(f"{report.answered:,} answered 200, {report.outcomes:,} outcomes: {verdict}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
