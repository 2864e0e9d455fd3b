"""From an operator's replay to its outcome: the API, Kafka and the matcher as a process."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from room_common.crypto import Keyring
from room_common.domain.signing import sign_github, sign_stripe
from room_common.kafka.producer import Producer
from room_common.kafka.reader import Reader
from room_common.kafka.settings import KafkaSettings
from room_testing.administering import Administering, opened
from room_testing.matching import ENCRYPTION_KEYS, PUBLIC_URL, Matching
from room_testing.plugin import StartService
from room_testing.scripted_llm import ScriptedLlm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
async def matching(database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool) -> AsyncIterator[Matching]:
    world = Matching(database_dsn, kafka_bootstrap, idempotence=kafka_idempotence)
    await world.open()
    yield world
    await world.close()


@pytest.fixture
async def api(matching: Matching) -> AsyncIterator[Administering]:
    settings = KafkaSettings(
        bootstrap_servers=matching.bootstrap,
        idempotence=matching.idempotence,
        replication_factor=1,
        min_insync_replicas=1,
    )
    producer = Producer(settings, CollectorRegistry())
    await producer.start()
    keyring = Keyring.parse(ENCRYPTION_KEYS)
    async with opened(
        matching.dsn, public_url=PUBLIC_URL, kafka=(Reader(settings), producer), keyring=keyring
    ) as world:
        yield world
    await producer.stop()


async def replayed(api: Administering, matching: Matching, delivery_id: UUID, **body: Any) -> list[dict[str, Any]]:
    answer = await api.call("POST", f"/deliveries/{delivery_id}/replay", json=body)
    assert answer.status_code == 200, answer.text
    return await matching.decided(UUID(answer.json()["id"]))


async def test_replays_come_to_an_outcome_of_their_own(
    matching: Matching, api: Administering, start_service: StartService
) -> None:
    instance = await matching.instance()
    github = await matching.source(instance, "github", secrets=["s"], criteria=["a push"])
    stripe = await matching.source(instance, "stripe", secrets=["whsec_x"], criteria=["a push"])
    hubspot = await matching.source(instance, "hubspot", criteria=["a push"])
    body = b'{ "ref":  "main", "what": "push" }'
    paid = b'{"id": "evt_1", "what": "push"}'
    hour_ago = int(time.time()) - 3600
    async with ScriptedLlm(lambda text: "yes" if "push" in text.rpartition("Criterion:")[0] else "no") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        good = await matching.send(github, body, http={**sign_github(b"s", body), "x-github-delivery": "g-1"})
        copy = await matching.send(github, body, http={**sign_github(b"s", body), "x-github-delivery": "g-1"})
        forged = await matching.send(github, body, http={**sign_github(b"wrong", body), "x-github-delivery": "g-2"})
        old = await matching.send(
            stripe,
            paid,
            http=sign_stripe(b"whsec_x", paid, timestamp_s=hour_ago),
            received_at_us=hour_ago * 1_000_000,
        )
        batch = await matching.send(hubspot, b'[{"eventId": 1, "w": "push"}, {"eventId": 2, "w": "open"}]')
        assert [(await matching.decided(one))[0]["outcome"] for one in (good, forged, old)] == [
            "matched",
            "bad_signature",
            "matched",
        ]
        assert {row["outcome"] for one in (good, copy) for row in await matching.decided(one)} == {
            "matched",
            "duplicate",
        }
        assert [row["outcome"] for row in await matching.decided(batch, 2)] == ["matched", "no_match"]

        shown = await api.get(f"/deliveries/{good}/payload")
        assert base64.b64decode(shown["raw"]) == body and shown["decoded"]["what"] == "push"
        for source_of, verified in ((good, True), (copy, True), (old, True)):
            [row] = await replayed(api, matching, source_of)
            assert (row["outcome"], row["replay_of"], row["reason"]) == ("matched", source_of, None)
            assert row["id_conflict"] is False
            assert await _verified(matching, row["id"]) is verified
        [row] = await replayed(api, matching, forged, force=True)
        assert (row["outcome"], row["replay_of"]) == ("matched", forged)
        assert await _verified(matching, row["id"]) is False
        [row] = await replayed(api, matching, batch, item=1)
        assert (row["item"], row["outcome"]) == (1, "no_match")
        # A replay leaves what its sender sent as it was: the next copy of it is a duplicate still.
        again = await matching.send(github, body, http={**sign_github(b"s", body), "x-github-delivery": "g-1"})
        assert (await matching.decided(again))[0]["outcome"] == "duplicate"


async def test_a_dropped_one_that_was_replayed_is_remembered(
    matching: Matching, api: Administering, start_service: StartService
) -> None:
    instance = await matching.instance(enabled=False)
    source = await matching.source(instance, "github", secrets=["s"], criteria=["a push"])
    body = b'{"what": "push"}'
    http = {**sign_github(b"s", body), "x-github-delivery": "g-9"}
    async with ScriptedLlm(lambda _: "yes") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        dropped = await matching.send(source, body, http=http)
        assert (await matching.decided(dropped))[0]["outcome"] == "room_disabled"
        await matching.query("update instance_room set enabled = true")
        [row] = await replayed(api, matching, dropped)
        assert row["outcome"] == "matched"
        again = await matching.send(source, body, http=http)
        assert (await matching.decided(again))[0]["outcome"] == "duplicate"


async def test_a_dead_one_is_sent_again_from_the_dead(
    matching: Matching, api: Administering, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["anything"])
    async with ScriptedLlm(lambda _: 400) as llm:
        llm.error_body = {"message": "too long", "code": "context_length_exceeded"}
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        died = await matching.send(source, b'{"n": 1}')
        assert (await matching.decided(died))[0]["outcome"] == "dead"
        await matching.query("delete from webhook_deliveries")
        shown = await api.get(f"/deliveries/{died}/payload")
        assert (shown["topic"], shown["decoded"]) == ("room.webhooks.dead", {"n": 1})
        llm.script = lambda _: "yes"
        [row] = await replayed(api, matching, died)
        assert (row["outcome"], row["replay_of"]) == ("matched", died)


async def _verified(matching: Matching, delivery_id: UUID) -> bool:
    [row] = await matching.query("select verified from event_backlog where delivery_id = %s", delivery_id)
    return bool(row["verified"])
