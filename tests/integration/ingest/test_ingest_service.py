"""The process from outside: webhooks in, records out, and what it says while Kafka or its topics are missing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from aiokafka import AIOKafkaConsumer

from room_common.contracts.envelope import decode
from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW
from room_common.domain.tokens import record_key, token_digest
from room_common.kafka.records import Record
from room_local.parts.addresses import free_port
from room_testing.ingest_process import MakeIngest
from room_testing.webhook_load import Load, Topic

pytestmark = pytest.mark.integration


def read(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def ask(port: int, data: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


def post(path: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nX-GitHub-Event: push\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def test_every_200_is_in_the_topic_exactly_once(
    kafka_bootstrap: str, kafka_idempotence: bool, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    service, port = await make_ingest(kafka_bootstrap, kafka_idempotence)
    topic = Topic(kafka_bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(2000)
    await load.stop()
    numbers = await topic.numbers(load)
    assert load.answers == {200: len(load.accepted)}
    assert numbers == dict.fromkeys(load.accepted, 1)
    status, metrics = await asyncio.to_thread(read, service.operations_port, "/metrics")
    assert status == 200
    assert f'room_ingest_answers_total{{answer="ok",route="webhooks"}} {len(load.accepted)}.0' in metrics
    assert not any(token in service.output() + metrics for token in tokens)


async def test_records_carry_body_and_envelope_and_replies_have_their_topic(
    kafka_bootstrap: str, kafka_idempotence: bool, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    _, port = await make_ingest(kafka_bootstrap, kafka_idempotence)
    body = bytes(range(256))
    digest = token_digest(tokens[0])
    for name, path, key in (
        (WEBHOOKS_RAW, f"/webhooks/{tokens[0]}?a=b", record_key(digest)),
        (REPLIES_RAW, f"/channels/local/{tokens[0]}?a=b", digest.hex().encode()),
    ):
        async with AIOKafkaConsumer(name, bootstrap_servers=kafka_bootstrap, auto_offset_reset="latest") as consumer:
            await consumer.seek_to_end()
            assert await ask(port, post(path, body)) == 200
            async with asyncio.timeout(20):
                record = await consumer.getone()
                while record.value != body:  # others' records: the end is looked up when the first one is fetched
                    record = await consumer.getone()
        assert (record.key, record.value) == (key, body)
        envelope = decode(Record(name, record.partition, record.offset, 0, record.key, record.value, record.headers))
        assert (envelope.token_sha256, envelope.query, envelope.outcome) == (digest, "a=b", "ok")
        assert envelope.http == {"x-github-event": "push"}
        assert (envelope.channel == "local") == (name == REPLIES_RAW)


async def test_without_kafka_it_starts_says_so_and_answers_503(make_ingest: MakeIngest, tokens: list[str]) -> None:
    service, port = await make_ingest(f"127.0.0.1:{free_port()}", False, topics=False, wait=False)
    async with asyncio.timeout(20):
        while True:
            try:
                assert await ask(port, post(f"/webhooks/{tokens[0]}", b"{}")) == 503
                break
            except OSError:
                await asyncio.sleep(0.1)
    assert await ask(port, post(f"/webhooks/{'0' * 64}", b"{}")) == 200
    status, text = await asyncio.to_thread(read, service.operations_port, "/readyz")
    assert status == 503
    assert "Kafka" in text
    assert service.lives()
    assert service.pid is not None
    os.kill(service.pid, signal.SIGTERM)
    assert await asyncio.to_thread(service.wait_exit) == 0


async def test_two_processes_share_a_port_and_one_may_go(
    kafka_bootstrap: str, kafka_idempotence: bool, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    first, port = await make_ingest(kafka_bootstrap, kafka_idempotence, ROOM_INGEST__REUSE_PORT="true")
    settings = {"ROOM_INGEST__REUSE_PORT": "true", "ROOM_INGEST__PORT": str(port)}
    second, _ = await make_ingest(kafka_bootstrap, kafka_idempotence, **settings)
    topic = Topic(kafka_bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=32)
    load.start()
    await load.reached(1000)
    connections = [
        (await asyncio.to_thread(read, service.operations_port, "/metrics"))[1].split("\nroom_ingest_connections ")[1]
        for service in (first, second)
    ]
    assert all(float(text.split("\n")[0]) > 0 for text in connections)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGTERM)
    assert await asyncio.to_thread(first.wait_exit) == 0
    await load.reached(len(load.accepted) + 500)
    await load.stop()
    assert load.cut == 0
    assert load.answers == {200: len(load.accepted)}
    assert await topic.numbers(load) == dict.fromkeys(load.accepted, 1)
    assert second.lives()


def test_a_wrong_setting_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "room_ingest"],
        env={"ROOM_KAFKA__BOOTSTRAP_SERVERS": "a:1", "ROOM_TOKEN_KEYS": "x", "ROOM_INGEST__PORT": "99999"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert "ROOM_INGEST__PORT" in done.stderr
    assert "ROOM_TOKEN_KEYS" in done.stderr
