"""Whatever ends or hangs while webhooks arrive: a 200 is in the topic, and nobody is left without an answer."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW
from room_common.contracts.topics import topic as registered
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_testing.ingest_process import MakeIngest
from room_testing.parts import Broker
from room_testing.webhook_load import Load, Topic

pytestmark = [pytest.mark.integration, pytest.mark.chaos]


def assert_all_there(load: Load, numbers: Counter[int], *, once: bool) -> None:
    missing = load.accepted - numbers.keys()
    assert not missing, f"{len(missing)} of {len(load.accepted)} answered 200 are not in the topic"
    if once:
        twice = [number for number, count in numbers.items() if count > 1]
        assert not twice, f"{len(twice)} are there more than once"


@pytest.mark.apache
@pytest.mark.parametrize("fault", ["restart", "kill"])
async def test_a_broker_that_restarts_while_webhooks_arrive_loses_none(
    kafka_broker: Broker, make_ingest: MakeIngest, tokens: list[str], fault: str
) -> None:
    service, port = await make_ingest(kafka_broker.bootstrap, True)
    topic = Topic(kafka_broker.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(500)
    if fault == "kill":
        await asyncio.to_thread(kafka_broker.kill)
    await asyncio.to_thread(kafka_broker.restart)
    await load.reached(len(load.accepted) + 500)
    await load.stop()
    assert load.cut == load.refused == 0
    assert set(load.answers) <= {200, 503}
    assert_all_there(load, await topic.numbers(load), once=True)
    assert service.lives()


@pytest.mark.apache
async def test_a_broker_that_hangs_costs_503_and_no_event(
    kafka_broker: Broker, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    service, port = await make_ingest(kafka_broker.bootstrap, True, ROOM_INGEST__KAFKA_REQUEST_SECONDS="2")
    topic = Topic(kafka_broker.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(500)
    await asyncio.to_thread(kafka_broker.pause)
    async with asyncio.timeout(30):
        while load.answers[503] < 64:
            await asyncio.sleep(0.05)
    await asyncio.to_thread(kafka_broker.resume)
    await load.reached(len(load.accepted) + 500)
    await load.stop()
    assert load.cut == load.refused == 0
    assert_all_there(load, await topic.numbers(load), once=False)
    assert service.lives()


@pytest.mark.apache
async def test_a_leader_that_dies_in_a_cluster_costs_no_event(
    kafka_cluster: Broker, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    _, port = await make_ingest(kafka_cluster.bootstrap, True, replicas=3)
    topic = Topic(kafka_cluster.bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=16)
    load.start()
    await load.reached(500)
    await asyncio.to_thread(kafka_cluster.kill, 1)
    await load.reached(len(load.accepted) + 500)
    await asyncio.to_thread(kafka_cluster.restart, 1)
    await load.reached(len(load.accepted) + 500)
    await load.stop()
    assert load.cut == load.refused == 0
    assert_all_there(load, await topic.numbers(load), once=True)


@pytest.mark.apache
async def test_topics_deleted_and_made_again_are_taken_up(
    kafka_broker: Broker, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    service, port = await make_ingest(kafka_broker.bootstrap, True)
    load = Load(port, tokens, senders=8)
    load.start()
    await load.reached(200)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([WEBHOOKS_RAW, REPLIES_RAW])
        async with asyncio.timeout(30):
            while not load.answers[503]:
                await asyncio.sleep(0.05)
            settings = KafkaSettings(
                bootstrap_servers=kafka_broker.bootstrap, replication_factor=1, min_insync_replicas=1
            )
            while True:
                try:
                    await create_topics(settings, [registered(WEBHOOKS_RAW), registered(REPLIES_RAW)])
                    break
                except Exception:
                    await asyncio.sleep(0.2)
    finally:
        await admin.close()
    before = len(load.accepted)
    await load.reached(before + 500)
    await load.stop()
    assert load.cut == load.refused == 0
    assert service.lives()


async def test_sigterm_under_load_leaves_no_request_without_an_answer(
    kafka_bootstrap: str, kafka_idempotence: bool, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    service, port = await make_ingest(kafka_bootstrap, kafka_idempotence)
    topic = Topic(kafka_bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=32)
    load.start()
    await load.reached(1000)
    assert service.pid is not None
    os.kill(service.pid, signal.SIGTERM)
    assert await asyncio.to_thread(service.wait_exit) == 0
    await load.stop()
    assert load.cut == 0
    assert load.refused > 0
    assert load.answers == {200: len(load.accepted)}
    assert_all_there(load, await topic.numbers(load), once=True)


async def test_kill_9_under_load_loses_nothing_that_was_answered(
    kafka_bootstrap: str, kafka_idempotence: bool, make_ingest: MakeIngest, tokens: list[str]
) -> None:
    service, port = await make_ingest(kafka_bootstrap, kafka_idempotence)
    topic = Topic(kafka_bootstrap, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=32)
    load.start()
    await load.reached(1000)
    service.kill()
    await load.stop()
    assert_all_there(load, await topic.numbers(load), once=True)
