"""Kafka away while webhooks arrive: every 200 is in the topic in the end, exactly once in effect."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import urllib.error
import urllib.request
from collections import Counter

import psutil
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer

from room_common.contracts.topics import WEBHOOKS_RAW
from room_local.parts.addresses import free_port
from room_testing.ingest_process import MakeIngest
from room_testing.parts import Broker, Parts
from room_testing.processes import ServiceProcess
from room_testing.webhook_load import Load, Topic

pytestmark = [pytest.mark.integration, pytest.mark.chaos]


def rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select (select rows from ingest_overflow_total), (select count(*) from ingest_overflow)"
        ).fetchone()
    assert row is not None
    assert row[0] == row[1]
    return int(row[0])


async def drained(dsn: str, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await asyncio.to_thread(rows, dsn):
            await asyncio.sleep(0.1)


async def overflowed(dsn: str, count: int) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(rows, dsn) < count:
            await asyncio.sleep(0.1)


def metric(service: ServiceProcess, line: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{service.operations_port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    assert found is not None, line
    return float(found[1])


def ready(service: ServiceProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{service.operations_port}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def ids_of(topic: Topic, load: Load) -> dict[int, set[bytes]]:
    """The ids under which each number of a load is in the topic."""
    found: dict[int, set[bytes]] = {}
    number = re.compile(rb'"run":"%b","n":(\d+)' % load.run.encode())
    async with AIOKafkaConsumer(bootstrap_servers=topic.bootstrap, enable_auto_commit=False) as consumer:
        ends = await topic._ends(consumer)
        consumer.assign(list(ends))
        for partition in ends:
            consumer.seek(partition, topic.start.get(partition, 0))
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    match = number.search(record.value or b"")
                    if match:
                        found.setdefault(int(match[1]), set()).add(dict(record.headers)["id"])
    return found


async def assert_once_in_effect(topic: Topic, load: Load) -> None:
    ids = await ids_of(topic, load)
    missing = load.accepted - ids.keys()
    assert not missing, f"{len(missing)} of {len(load.accepted)} answered 200 are not in the topic"
    twice = [number for number, found in ids.items() if len(found) > 1]
    assert not twice, f"{len(twice)} are there under more than one id"


@pytest.mark.apache
@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_a_broker_that_is_away_costs_no_200_and_no_503(
    kafka_broker: Broker, make_ingest: MakeIngest, tokens: list[str], database_dsn: str, overflow_dsn: str, fault: str
) -> None:
    service, port = await make_ingest(
        kafka_broker.bootstrap, True, ROOM_OVERFLOW__DSN=overflow_dsn, ROOM_INGEST__KAFKA_REQUEST_SECONDS="2"
    )
    topic = Topic(kafka_broker.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(500)
    assert rows(database_dsn) == 0
    await asyncio.to_thread(kafka_broker.kill if fault == "kill" else kafka_broker.pause)
    await load.reached(len(load.accepted) + 1500)
    await overflowed(database_dsn, 500)
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(metric, service, "room_ingest_overflow_rows"):
            await asyncio.sleep(0.2)
    assert (await asyncio.to_thread(ready, service))[0] == 200
    await asyncio.to_thread(kafka_broker.restart if fault == "kill" else kafka_broker.resume)
    await load.reached(len(load.accepted) + 1000)
    await drained(database_dsn)  # while the load goes on
    await load.stop()
    await drained(database_dsn)
    assert load.cut == load.refused == 0
    assert load.answers == Counter({200: len(load.accepted)})
    await assert_once_in_effect(topic, load)
    assert metric(service, 'room_ingest_answers_total{answer="overflow",route="webhooks"}') >= 500
    assert metric(service, 'room_ingest_overflow_records_total{result="drained"}') >= 500
    assert service.lives()


@pytest.mark.apache
@pytest.mark.parametrize("crash", ["ingest.overflow.before_commit:20", "ingest.overflow.before_removal:2"])
async def test_ingest_killed_while_overflowing_or_draining_loses_nothing(
    kafka_broker: Broker, make_ingest: MakeIngest, tokens: list[str], database_dsn: str, overflow_dsn: str, crash: str
) -> None:
    settings = {"ROOM_OVERFLOW__DSN": overflow_dsn, "ROOM_OVERFLOW__LOOK_SECONDS": "1"}
    settings |= {"ROOM_OVERFLOW__DRAIN_ROWS": "50"}
    _, port = await make_ingest(kafka_broker.bootstrap, True, crash=crash, **settings)
    topic = Topic(kafka_broker.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(300)
    await asyncio.to_thread(kafka_broker.pause)
    if "before_commit" not in crash:
        await overflowed(database_dsn, 300)
        await asyncio.to_thread(kafka_broker.resume)
    async with asyncio.timeout(60):
        while not load.refused:
            await asyncio.sleep(0.05)
    await load.stop()
    await asyncio.to_thread(kafka_broker.resume)
    assert rows(database_dsn) > 0
    await make_ingest(kafka_broker.bootstrap, True, **settings)
    await drained(database_dsn)
    await assert_once_in_effect(topic, load)


@pytest.mark.apache
async def test_without_kafka_and_postgresql_the_answer_is_503(
    kafka_broker: Broker,
    make_ingest: MakeIngest,
    tokens: list[str],
    room_parts: Parts,
    overflow_dsn: str,
    database_dsn: str,
) -> None:
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    service, port = await make_ingest(kafka_broker.bootstrap, True, ROOM_OVERFLOW__DSN=overflow_dsn)
    topic = Topic(kafka_broker.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(300)
    await asyncio.to_thread(kafka_broker.pause)
    await overflowed(database_dsn, 100)
    await asyncio.to_thread(server.kill)
    async with asyncio.timeout(60):
        while load.answers[503] < 100 or (await asyncio.to_thread(ready, service))[0] != 503:
            await asyncio.sleep(0.1)
    _, text = await asyncio.to_thread(ready, service)
    assert "Kafka" in text
    assert "overflow table" in text
    await asyncio.to_thread(server.restart)
    accepted = len(load.accepted)
    await load.reached(accepted + 200)  # PostgreSQL alone is enough again
    assert server.pid is not None
    frozen = psutil.Process(server.pid).children()  # sessions of their own: they are not frozen with the server
    try:
        for process in frozen:
            process.suspend()
        async with asyncio.timeout(60):
            before = load.answers[503]
            while load.answers[503] < before + 100:
                await asyncio.sleep(0.1)
    finally:
        for process in frozen:
            process.resume()
    await asyncio.to_thread(kafka_broker.resume)
    await load.reached(len(load.accepted) + 300)
    await load.stop()
    await drained(database_dsn)
    assert load.cut == load.refused == 0
    assert load.longest < 15
    assert set(load.answers) == {200, 503}
    await assert_once_in_effect(topic, load)
    assert service.lives()


async def test_two_processes_drain_at_once(
    kafka_bootstrap: str,
    kafka_idempotence: bool,
    make_ingest: MakeIngest,
    tokens: list[str],
    database_dsn: str,
    overflow_dsn: str,
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    settings = {"ROOM_OVERFLOW__DSN": overflow_dsn, "ROOM_OVERFLOW__LOOK_SECONDS": "0.5"}
    first, port = await make_ingest(nowhere, False, topics=False, **settings)  # ready without Kafka
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(3000)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGTERM)
    assert await asyncio.to_thread(first.wait_exit) == 0
    await load.stop()
    assert load.cut == 0
    assert load.answers == Counter({200: len(load.accepted)})
    assert rows(database_dsn) == len(load.accepted)
    topic = Topic(kafka_bootstrap, WEBHOOKS_RAW)
    settings |= {"ROOM_OVERFLOW__DRAIN_ROWS": "100"}
    both = [(await make_ingest(kafka_bootstrap, kafka_idempotence, wait=False, **settings))[0] for _ in range(2)]
    await drained(database_dsn)
    numbers = await topic.numbers(load)
    assert numbers == dict.fromkeys(load.accepted, 1)
    await assert_once_in_effect(topic, load)
    for service in both:
        assert service.lives()
        assert metric(service, 'room_ingest_overflow_records_total{result="drained"}') > 0


async def test_a_full_table_is_503_and_not_ready(
    make_ingest: MakeIngest, tokens: list[str], database_dsn: str, overflow_dsn: str
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    settings = {"ROOM_OVERFLOW__DSN": overflow_dsn, "ROOM_OVERFLOW__MAX_ROWS": "100"}
    service, port = await make_ingest(nowhere, False, topics=False, **settings)
    load = Load(port, tokens, senders=8)
    load.start()
    async with asyncio.timeout(30):
        while load.answers[503] < 20 or (await asyncio.to_thread(ready, service))[0] != 503:
            await asyncio.sleep(0.05)
    await load.stop()
    assert rows(database_dsn) == len(load.accepted)
    assert 90 <= len(load.accepted) <= 100
    assert "full" in (await asyncio.to_thread(ready, service))[1]
