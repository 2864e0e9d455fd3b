"""The matcher as a real process: raw records in, outcomes and backlog rows out."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlencode

import httpx2
import orjson
import pytest
from psycopg.types.json import Jsonb

from room_common.domain.signing import sign_github, sign_hubspot, sign_stripe
from room_testing.matching import Matching, eventually
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess
from room_testing.scripted_llm import Reply, ScriptedLlm

WAITS_FOR_KEY = 'room_consumer_postponed_records{group="room-matcher-slow",reason="unknown_key"} 1.0'

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def says_yes_to(*words: str) -> ScriptedLlm:
    """A model that answers yes where one of ``words`` is in the criterion and its payload alike."""

    def script(text: str) -> Reply:
        payload, _, criterion = text.rpartition("Criterion:")
        return "Yes." if any(word in payload and word in criterion for word in words) else "no"

    return ScriptedLlm(script)


async def waits_for(service: ServiceProcess, text: str) -> None:
    """Return once /readyz says ``text``."""
    async with httpx2.AsyncClient() as client:

        async def said() -> bool:
            answer = await client.get(f"http://127.0.0.1:{service.operations_port}/readyz")
            return answer.status_code == 503 and text in answer.text

        await eventually(said, f"{text} in /readyz")


async def test_each_kind_of_delivery_comes_to_its_outcome(matching: Matching, start_service: StartService) -> None:
    instance = await matching.instance()
    github = await matching.source(instance, "github", secrets=["old", "new"], criteria=["a failure", "a push"])
    stripe = await matching.source(instance, "stripe", secrets=["whsec_x"], criteria=["a paid invoice"])
    plain = await matching.source(instance, criteria=["a paid order"])
    silent = await matching.source(instance, criteria=[])
    off = await matching.source(instance, enabled=False)
    broken = await matching.source(instance, config=b"\x01\x02e1" + bytes(40))
    asleep = await matching.source(await matching.instance(enabled=False))
    broke = await matching.source(await matching.instance(budget=0))
    async with says_yes_to("push", "paid") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        push = b'{ "ref": "refs/heads/main", "what": "push" }'
        form = urlencode({"payload": push.decode()}).encode()
        form_type = "application/x-www-form-urlencoded"
        paid = b'{"id": "evt_1", "type": "invoice.paid", "pending_webhooks": 1}'
        signed = sign_stripe(b"whsec_x", paid, timestamp_s=int(time.time()))
        stale = sign_stripe(b"whsec_x", paid, timestamp_s=int(time.time()) - 1200)
        again = paid.replace(b'webhooks": 1', b'webhooks": 0')
        sent = {
            "matched": await matching.send(
                github, push, http={**sign_github(b"new", push), "x-github-delivery": "g-1", "x-github-event": "push"}
            ),
            "matched form": await matching.send(
                github,
                form,
                http={**sign_github(b"old", form), "x-github-delivery": "g-2"},
                content_type=form_type,
            ),
            "matched stripe": await matching.send(stripe, paid, http=signed),
            "bad_signature": await matching.send(github, push[1:], http=sign_github(b"new", push)),
            "bad_signature stale": await matching.send(stripe, paid, http=stale),
            "no_match": await matching.send(plain, b'{"order": "open"}'),
            "undecodable": await matching.send(plain, b'{"order": NaN}'),
            "undecodable empty": await matching.send(plain, b"", content_type=None),
            "too_large": await matching.send(plain, b"", outcome="too_large"),
            "handshake": await matching.send(
                plain, b'{"Type": "SubscriptionConfirmation", "Token": "t", "SubscribeURL": "https://x"}'
            ),
            "unknown_token": await matching.send(bytes(32), b"{}"),
            "source_disabled": await matching.send(off, b"{}"),
            "config_unreadable": await matching.send(broken, b"{}"),
            "room_disabled": await matching.send(asleep, b"{}"),
            "budget_exhausted": await matching.send(broke, b"{}"),
            "no_definitions": await matching.send(silent, b"{}"),
        }
        for name, delivery_id in sent.items():
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] == name.split()[0], name
        calls = len(llm.calls)
        retried = await matching.send(stripe, again, http=sign_stripe(b"whsec_x", again, timestamp_s=int(time.time())))
        (row,) = await matching.decided(retried)
        assert (row["outcome"], row["reason"]) == ("duplicate", f"of {sent['matched stripe']}/0")
        other = paid.replace(b"invoice.paid", b"invoice.void paid")
        conflict = await matching.send(stripe, other, http=sign_stripe(b"whsec_x", other, timestamp_s=int(time.time())))
        (row,) = await matching.decided(conflict)
        assert (row["outcome"], row["id_conflict"]) == ("matched", True)
        assert len(llm.calls) == calls + 1
    events = {event["delivery_id"]: event for event in await matching.backlog(instance)}
    assert set(events) == {sent["matched"], sent["matched form"], sent["matched stripe"], conflict}
    event = events[sent["matched"]]
    assert (event["raw_body"], event["verified"], event["status"]) == (push, True, "pending")
    assert event["event_definition_id"] == github.definitions[1]
    assert event["headers"]["x-github-event"] == "push"
    assert events[sent["matched form"]]["raw_body"] == form
    (row,) = await matching.outcomes(sent["matched"])
    assert [verdict["verdict"] for verdict in row["verdicts"]] == ["no", "yes"]
    assert (row["llm_calls"], row["tokens"]) == (2, 202)
    (row,) = await matching.outcomes(sent["unknown_token"])
    assert row["source_id"] is None
    (usage,) = await matching.query(
        "select sum(tokens)::int as tokens from token_usage where instance_id = %s", instance
    )
    (ledger,) = await matching.query(
        "select sum(tokens)::int as tokens from webhook_deliveries where instance_id = %s", instance
    )
    assert usage == ledger
    activity = await matching.query("select kind from room_activity_log where instance_id = %s", instance)
    assert len(activity) == 4


async def test_an_array_of_hubspot_is_one_event_per_element(matching: Matching, start_service: StartService) -> None:
    instance = await matching.instance()
    source = await matching.source(instance, "hubspot", secrets=["client"], criteria=["customer"])
    elements = [
        b'{"eventId": 1, "value": "customer", "attemptNumber": 0}',
        b'{"eventId": 2, "value": "lead"}',
        b"7",
        b'{"eventId": 3, "value": "customer"}',
    ]
    body = b"[" + b", ".join(elements) + b"]"
    async with says_yes_to("customer") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        http = sign_hubspot(b"client", body, method="POST", uri=source.uri, timestamp_ms=time.time_ns() // 1_000_000)
        first = await matching.send(source, body, http=http)
        rows = await matching.decided(first, items=4)
        assert [row["outcome"] for row in rows] == ["matched", "no_match", "undecodable", "matched"]
        assert {row["items"] for row in rows} == {4}
        later = body.replace(b'attemptNumber": 0', b'attemptNumber": 1')
        http = sign_hubspot(b"client", later, method="POST", uri=source.uri, timestamp_ms=time.time_ns() // 1_000_000)
        rows = await matching.decided(await matching.send(source, later, http=http), items=4)
        assert [row["outcome"] for row in rows] == ["duplicate", "duplicate", "undecodable", "duplicate"]
        assert len(llm.calls) == 3
    events = await matching.backlog(instance)
    assert sorted(bytes(event["raw_body"]) for event in events) == [elements[0], elements[3]]
    assert {event["content_type"] for event in events} == {"application/json"}


async def test_three_copies_at_once_are_one_event_and_one_call(matching: Matching, start_service: StartService) -> None:
    instance = await matching.instance()
    source = await matching.source(instance, "github", secrets=["s"], criteria=["push"])
    body = b'{"what": "push"}'
    http = {**sign_github(b"s", body), "x-github-delivery": "same"}
    async with says_yes_to("push") as llm:
        copies = await asyncio.gather(*(matching.send(source, body, http=http) for _ in range(3)))
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        rows = [row for copy in copies for row in await matching.decided(copy)]
        assert sorted(row["outcome"] for row in rows) == ["duplicate", "duplicate", "matched"]
        assert len(llm.calls) == 1
    assert len(await matching.backlog(instance)) == 1


async def test_copies_that_differ_in_what_a_retry_changes_are_one_call_too(
    matching: Matching, start_service: StartService
) -> None:
    instance = await matching.instance()
    source = await matching.source(instance, "stripe", criteria=["paid"])
    async with says_yes_to("paid") as llm:
        for number in range(3):
            await matching.send(source, b'{"id": "evt_1", "what": "paid", "pending_webhooks": %d}' % number)
        last = await matching.send(source, b'{"id": "evt_2", "what": "paid"}')
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        await matching.decided(last)

        async def all_decided() -> bool:
            rows = await matching.query("select outcome from webhook_deliveries where source_id = %s", source.id)
            return sorted(row["outcome"] for row in rows) == ["duplicate", "duplicate", "matched", "matched"]

        await eventually(all_decided, "the outcomes of the copies")
        assert llm.calls_about("evt_1") == 1
    assert len(await matching.backlog(instance)) == 2


async def test_a_record_that_comes_twice_is_decided_and_paid_once(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["push"])
    received = time.time_ns() // 1000
    async with says_yes_to("push") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        first = await matching.send(source, b'{"what": "push"}', partition=1, received_at_us=received)
        await matching.decided(first)
        await matching.query("delete from webhook_dedup where source_id = %s", source.id)
        await matching.send(source, b'{"what": "push"}', partition=1, delivery_id=first, received_at_us=received)
        await matching.decided(await matching.send(source, b'{"what": "nothing"}', partition=1))
        assert llm.calls_about('"push"') == 1
    assert len(await matching.outcomes(first)) == 1
    assert len(await matching.backlog(source.instance_id)) == 1


async def test_a_model_call_that_hangs_delays_no_other_source_of_its_partition(
    matching: Matching, start_service: StartService
) -> None:
    slow = await matching.source(await matching.instance(), criteria=["slow"])
    quick = await matching.source(await matching.instance(), criteria=["quick"])
    async with says_yes_to("slow", "quick") as llm:
        go_on = llm.hold("slow-payload")
        start_service("room_matcher", matching.environment(llm.url, ROOM_LLM__FAST_TIMEOUT_SECONDS="120"))
        hanging = await matching.send(slow, b'{"what": "slow-payload"}', partition=0)
        await llm.hangs("slow-payload")
        for number in range(20):
            body = orjson.dumps({"what": "quick", "number": number})
            (row,) = await matching.decided(await matching.send(quick, body, partition=0))
            assert row["outcome"] == "matched"
        assert await matching.outcomes(hanging) == []
        go_on.set()
        (row,) = await matching.decided(hanging)
        assert row["outcome"] == "matched"
    assert len(await matching.backlog(quick.instance_id)) == 20


async def test_a_model_call_that_outlasts_its_timeout_holds_nobody_either(
    matching: Matching, start_service: StartService
) -> None:
    slow = await matching.source(await matching.instance(), criteria=["slow"])
    quick = await matching.source(await matching.instance(), criteria=["quick"])
    async with says_yes_to("slow", "quick") as llm:
        go_on = llm.hold("slow-payload")
        environment = matching.environment(
            llm.url, ROOM_LLM__FAST_TIMEOUT_SECONDS="0.5", ROOM_MATCHER__PROBE_SECONDS="300"
        )
        await asyncio.to_thread(start_service, "room_matcher", environment)
        hanging = await matching.send(slow, b'{"what": "slow-payload"}', partition=0)

        async def given_up_twice() -> bool:
            return llm.calls_about("slow-payload") >= 3

        await eventually(given_up_twice, "the third try of the slow call")
        for number in range(5):
            body = orjson.dumps({"what": "quick", "number": number})
            (row,) = await matching.decided(await matching.send(quick, body, partition=0))
            assert row["outcome"] == "matched"
        assert await matching.outcomes(hanging) == []
        go_on.set()
        (row,) = await matching.decided(hanging)
        assert row["outcome"] == "matched"


async def test_a_provider_that_is_away_holds_and_loses_nothing(matching: Matching, start_service: StartService) -> None:
    source = await matching.source(await matching.instance(), criteria=["push"])
    async with says_yes_to("push") as llm:
        llm.status = 503
        service = start_service("room_matcher", matching.environment(llm.url))
        sent = [await matching.send(source, orjson.dumps({"what": "push", "n": number})) for number in range(5)]
        await waits_for(service, "held: llm")
        assert service.lives()
        assert [await matching.outcomes(delivery_id) for delivery_id in sent] == [[]] * 5
        llm.status = None
        for delivery_id in sent:
            (row,) = await matching.decided(delivery_id)
            assert row["outcome"] == "matched"
    for delivery_id in sent:
        assert await matching.dead_letters(delivery_id) == []


async def test_an_event_that_the_provider_refuses_is_dead_and_the_next_one_lives(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["push"])

    def script(text: str) -> Reply:
        return 400 if "poison" in text else "yes"

    async with ScriptedLlm(script) as llm:
        llm.error_body = {"message": "maximum context length", "code": "context_length_exceeded"}
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        dead = await matching.send(source, b'{"what": "poison"}', partition=2)
        headless = await matching.send_headless(b"{}")
        alive = await matching.send(source, b'{"what": "push"}', partition=2)
        (row,) = await matching.decided(dead)
        assert (row["outcome"], row["reason"], row["llm_calls"]) == ("dead", "context_length (400)", 1)
        (row,) = await matching.decided(alive)
        assert row["outcome"] == "matched"

        async def nameless() -> list[dict[str, object]]:
            return await matching.query(
                'select * from webhook_deliveries where "partition" = 0 and "offset" = %s', headless
            )

        (row,) = await eventually(nameless, "the outcome of the record without an envelope")
        assert (row["outcome"], row["reason"]) == ("dead", "bad_envelope")
    (headers,) = await matching.dead_letters(dead)
    assert headers["error"] == b"context_length:400"
    assert headers["attempts"] == b"1"


async def test_a_key_that_is_missing_is_waited_for(matching: Matching, start_service: StartService) -> None:
    sealed_elsewhere = b"\x01\x02e9" + bytes(40)
    source = await matching.source(await matching.instance(), config=sealed_elsewhere)
    async with says_yes_to("push") as llm:
        service = start_service("room_matcher", matching.environment(llm.url))
        delivery_id = await matching.send(source, b"{}")

        async def waits_alone() -> bool:
            async with httpx2.AsyncClient() as client:
                answer = await client.get(f"http://127.0.0.1:{service.operations_port}/metrics")
            return WAITS_FOR_KEY in answer.text

        await eventually(waits_alone, WAITS_FOR_KEY)
        assert service.answers()
        assert await matching.outcomes(delivery_id) == []


async def test_an_item_that_fails_unforeseen_is_dead_after_three_tries_and_spoils_no_other(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), "hubspot", criteria=["customer"])
    await matching.query(
        "alter table event_backlog add check (position('\\x22736f757222'::bytea in raw_body) = 0)"  # "sour"
    )
    body = b'[{"eventId": 1, "v": "customer"}, {"eventId": 2, "v": "customer", "w": "sour"}, {"eventId": 3}]'
    async with says_yes_to("customer") as llm:
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        delivery_id = await matching.send(source, body)
        rows = await matching.decided(delivery_id, items=3)
        assert [row["outcome"] for row in rows] == ["matched", "dead", "no_match"]
        assert rows[1]["reason"] == "unforeseen_CheckViolation"
        assert max(row["items"] for row in rows) == 3
        sour = b'[{"eventId": 4, "v": "customer", "w": "sour"}, {"eventId": 5, "v": "customer", "w": "sour"}]'
        rows = await matching.decided(await matching.send(source, sour), items=2)
        assert [(row["outcome"], row["items"]) for row in rows] == [("dead", 2)] * 2
    (headers,) = await matching.dead_letters(delivery_id)
    assert (headers["item"], headers["attempts"]) == (b"1", b"3")
    assert len(await matching.backlog(source.instance_id)) == 1


async def test_an_instance_whose_own_model_is_refused_is_judged_by_the_default_and_told(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["push"])
    await matching.query("update instances set models = %s", Jsonb({"fast": "mine"}))
    async with says_yes_to("push") as llm:
        llm.unknown_models = {"mine"}
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        for number in range(3):
            await matching.decided(await matching.send(source, orjson.dumps({"what": "push", "n": number})))
    rows = await matching.query("select kind, severity from room_activity_log order by kind")
    assert [(row["kind"], row["severity"]) for row in rows] == [("error", "warning")] + [("event_matched", "info")] * 3
