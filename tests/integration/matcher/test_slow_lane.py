"""One source's flood, one source's missing key, and a deployment that kills everything."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from uuid import UUID

import httpx2
import pytest

from room_common.contracts.envelope import decode
from room_common.contracts.source_config import CONFIG_COLUMN, CONFIG_TABLE, SourceConfig
from room_common.contracts.topics import WEBHOOKS_RAW, WEBHOOKS_SLOW
from room_common.crypto import Keyring
from room_common.identity import new_id
from room_common.kafka.records import Record, from_consumer
from room_testing.conservation import every_record
from room_testing.matching import ENCRYPTION_KEYS, Matching, eventually
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess
from room_testing.scripted_llm import Reply, ScriptedLlm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

KEY_GAUGE = re.compile(r'room_consumer_postponed_records{group="room-matcher-slow",reason="unknown_key"} [1-9]')
OTHER_KEYS = "e9:" + "99" * 32


def script(text: str) -> Reply:
    payload, _, criterion = text.rpartition("Criterion:")
    return "yes" if "push" in payload and "push" in criterion else "no"


async def metrics(service: ServiceProcess) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{service.operations_port}/metrics")).text


async def says(service: ServiceProcess, dependency: str, gauge: str) -> None:
    """Return once /readyz and the metrics say so, and the process is alive all the same."""
    async with httpx2.AsyncClient() as client:

        async def said() -> bool:
            answer = await client.get(f"http://127.0.0.1:{service.operations_port}/readyz")
            return (
                answer.status_code == 503 and f"held: {dependency}" in answer.text and gauge in await metrics(service)
            )

        await eventually(said, f"{dependency} in /readyz and {gauge}")
    assert service.lives()


async def diverted(matching: Matching, ids: set[UUID]) -> Mapping[UUID, Record]:
    """The records of the slow lane among ``ids``."""
    found = {}
    async for message in every_record(matching.bootstrap, WEBHOOKS_SLOW):
        record = from_consumer(message)
        if (delivery_id := decode(record).id) in ids:
            found[delivery_id] = record
    return found


async def test_a_flood_delays_nobody_else_of_its_partition_and_loses_nothing(
    matching: Matching, start_service: StartService
) -> None:
    loud = await matching.source(await matching.instance(), criteria=["a push"])
    quiet = [await matching.source(await matching.instance(), criteria=["a push"]) for _ in range(5)]
    async with ScriptedLlm(script) as llm:
        llm.delays = {"loud": 5.0}
        settings = matching.environment(
            llm.url,
            ROOM_MATCHER__SOURCE_SHARE="16",
            ROOM_MATCHER__BUFFERED="128",
            ROOM_LLM__FAST_TIMEOUT_SECONDS="30",
        )
        service = await asyncio.to_thread(start_service, "room_matcher", settings)
        received = time.time_ns() // 1000
        flood = [
            await matching.send(loud, b'{"what":"loud","n":%d}' % number, partition=0, received_at_us=received + number)
            for number in range(300)
        ]
        # A receipt from a clock that is ahead is replaced by the broker's: in both lanes by the same one.
        ahead = await matching.send(
            loud, b'{"what":"loud","n":"ahead"}', partition=0, received_at_us=received + 3_600_000_000
        )
        others = [
            await matching.send(source, b'{"what":"push","n":%d}' % number, partition=0)
            for number in range(4)
            for source in quiet
        ]
        for delivery_id in others:
            (row,) = await matching.decided(delivery_id)
            assert (row["outcome"], row["topic"]) == ("matched", "room.webhooks.raw")
        (row,) = await matching.query(
            "select count(*)::int as decided from webhook_deliveries where source_id = %s", loud.id
        )
        assert row["decided"] < 100
        slow = await diverted(matching, {*flood, ahead})
        assert len(slow) >= 150
        for delivery_id, record in slow.items():
            if delivery_id != ahead:
                assert decode(record).received_at_us == received + flood.index(delivery_id)
        assert 'room_diverted_records_total{why="share"}' in await metrics(service)
        llm.delays = {}
        await matching.query("update event_sources set enabled = false where id = %s", loud.id)
        for delivery_id in [*flood, ahead]:
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] in {"no_match", "source_disabled"}
        assert ahead in slow
        (row,) = await matching.outcomes(ahead)
        assert row["received_at"].timestamp() < time.time() + 60


async def test_a_record_that_is_in_both_lanes_is_one_delivery(matching: Matching, start_service: StartService) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        llm.delays = {"payload": 0.5}
        delivery_id, received = new_id(), time.time_ns() // 1000
        for topic in ("room.webhooks.raw", WEBHOOKS_SLOW):
            await matching.send(
                source, b'{"what":"push"}', delivery_id=delivery_id, received_at_us=received, topic=topic
            )
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        (row,) = await matching.decided(delivery_id)
        assert row["outcome"] == "matched"
        await matching.decided(await matching.send(source, b'{"what":"else"}', topic=WEBHOOKS_SLOW))
        assert len(await matching.outcomes(delivery_id)) == len(await matching.backlog(source.instance_id)) == 1
        assert llm.calls_about('"push"') == 1


async def test_copies_of_a_delivery_from_a_clock_that_is_ahead_are_one_row(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        delivery_id, received = new_id(), time.time_ns() // 1000
        for ahead_seconds in (3600, 3600, 2, -5):  # what is left of a lead when the copy is appended
            await matching.send(
                source,
                b'{"what":"push"}',
                delivery_id=delivery_id,
                received_at_us=received + ahead_seconds * 1_000_000,
                partition=0,
            )
            if ahead_seconds == 3600:
                await matching.decided(delivery_id)
            await matching.decided(await matching.send(source, b'{"what":"%d"}' % time.time_ns(), partition=0))
        await asyncio.sleep(0.5)
        (row,) = await matching.outcomes(delivery_id)
        assert row["outcome"] == "matched"
        assert len(await matching.backlog(source.instance_id)) == 1


async def test_a_source_whose_key_is_missing_waits_and_nobody_else_does(
    matching: Matching, start_service: StartService
) -> None:
    plain = await matching.source(await matching.instance(), criteria=["a push"])
    sealed = await matching.source(await matching.instance(), criteria=["a push"])
    config = Keyring.parse(OTHER_KEYS).encrypt(
        SourceConfig().encode(), table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(sealed.id)
    )
    await matching.query("update event_sources set config = %s where id = %s", config, sealed.id)
    async with ScriptedLlm(script) as llm:
        # The slow lane has 8 places and buffers 16 records: less than those that wait for the key.
        few = {"ROOM_MATCHER__CONCURRENCY": "32", "ROOM_MATCHER__BUFFERED": "64"}
        service = await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url, **few))
        waiting = [await matching.send(sealed, b'{"what":"push","n":%d}' % number, partition=2) for number in range(30)]

        async def wait_alone() -> bool:
            return KEY_GAUGE.search(await metrics(service)) is not None

        await eventually(wait_alone, "records that wait alone")
        for topic, partition in ((WEBHOOKS_RAW, 2), (WEBHOOKS_SLOW, 0), (WEBHOOKS_SLOW, 2)):
            for number in range(5):
                innocent = await matching.send(
                    plain,
                    b'{"what":"push","n":"%s/%d/%d"}' % (topic.encode(), partition, number),
                    topic=topic,
                    partition=partition,
                )
                (row,) = await matching.decided(innocent)
                assert row["outcome"] == "matched"

        async def gone_round() -> bool:
            found = re.search(r'room_diverted_records_total{why="key_again"} (\d+)', await metrics(service))
            return found is not None and int(found[1]) >= 30

        await eventually(gone_round, "a round of the slow lane")
        assert service.answers()
        assert "room_held{" not in await metrics(service)
        assert "ROOM_ENCRYPTION__KEYS" in service.output()
        assert [await matching.outcomes(delivery_id) for delivery_id in waiting] == [[]] * 30
        await asyncio.to_thread(service.stop)
        both = matching.environment(llm.url, ROOM_ENCRYPTION__KEYS=f"{ENCRYPTION_KEYS},{OTHER_KEYS}")
        await asyncio.to_thread(start_service, "room_matcher", both)
        for delivery_id in waiting:
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] == "matched"
        assert await matching.dead_letters(waiting[0]) == []
        assert len(await matching.backlog(sealed.instance_id)) == 30


async def test_a_deployment_under_which_everything_dies_is_stopped(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(lambda text: 400) as llm:
        llm.error_body = {"message": "flagged", "code": "content_filter"}
        sent = [await matching.send(source, b'{"what":"push","n":%d}' % number) for number in range(60)]
        began = time.monotonic()
        service = await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        await says(service, "dead_letters", "room_dead_letter_limit_reached 1.0")
        await asyncio.sleep(3)
        dead = await matching.query("select id from webhook_deliveries where outcome = 'dead'")
        assert 20 <= len(dead) <= 20 + (time.monotonic() - began) / 5
        assert await matching.query("select id from webhook_deliveries where outcome <> 'dead'") == []
        llm.script = script
        for delivery_id in sent:
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] in {"matched", "dead"}
        assert "room_dead_letter_limit_reached 0.0" in await metrics(service)
        rows = await matching.query("select id from webhook_deliveries where outcome = 'dead'")
        assert len(rows) <= 20 + (time.monotonic() - began) / 5
        for row in rows:
            assert await matching.dead_letters(row["id"]) != []
