"""What changes while events wait or are in flight: definitions, tokens, sources, instances, and the backlog's cap."""

from __future__ import annotations

import asyncio
import os

import pytest

from room_common.contracts.source_config import TOKEN_COLUMN, TOKEN_TABLE
from room_common.domain.tokens import make_token, parse_token_keys, token_digest
from room_testing.matching import TOKEN_KEYS, Matching, eventually
from room_testing.plugin import StartService
from room_testing.scripted_llm import Reply, ScriptedLlm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PUSH = b'{"what":"push"}'


def script(text: str) -> Reply:
    payload, _, criterion = text.rpartition("Criterion:")
    return "yes" if any(word in payload and word in criterion for word in ("push", "paid")) else "no"


async def test_events_that_wait_for_the_provider_are_judged_by_what_is_true_afterwards(
    matching: Matching, start_service: StartService
) -> None:
    deleted = await matching.source(await matching.instance(), criteria=["a push"])
    changed = await matching.source(await matching.instance(), criteria=["a push"])
    disabled = await matching.source(await matching.instance(), criteria=["a push"])
    gone = await matching.source(await matching.instance(), criteria=["a push"])
    same = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script, status=503) as llm:
        service = await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        sent = {
            source.id: await matching.send(source, PUSH, partition=place)
            for place, source in enumerate((deleted, changed, disabled, gone, same))
        }

        async def held() -> bool:
            return not service.answers()

        await eventually(held, "the hold")
        await matching.query("update event_definitions set deleted_at = now() where id = %s", deleted.definitions[0])
        await matching.query(
            "update event_definitions set matching_prompt = 'paid', version = 2 where id = %s", changed.definitions[0]
        )
        await matching.query("update event_sources set enabled = false where id = %s", disabled.id)
        await matching.query("update instances set deleted_at = now() where id = %s", gone.instance_id)
        await matching.query("update source_tokens set valid_until = now() where source_id = %s", gone.id)
        await asyncio.sleep(2.1)  # what is remembered of the configuration is at most 2 s old
        llm.status = None
        expected = {
            deleted.id: ("no_definitions", None),
            changed.id: ("no_match", None),
            disabled.id: ("source_disabled", None),
            gone.id: ("room_disabled", "instance_deleted"),
            same.id: ("matched", None),
        }
        for source_id, outcome in expected.items():
            (row,) = await matching.decided(sent[source_id])
            assert (row["outcome"], row["reason"]) == outcome


async def test_a_rotated_token_is_good_for_what_was_received_before(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        go_on = llm.hold('"before"')
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        in_flight = await matching.send(source, b'{"what":"push","n":"before"}')
        await llm.hangs('"before"')
        token = make_token(parse_token_keys(TOKEN_KEYS), os.urandom(24))
        sealed = matching.keyring.encrypt(
            token.encode(), table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id=token_digest(token).hex()
        )
        await matching.query("update source_tokens set valid_until = now() where source_id = %s", source.id)
        await matching.query(
            "insert into source_tokens (token_sha256, source_id, token_encrypted) values (%s, %s, %s)",
            token_digest(token),
            source.id,
            sealed,
        )
        await asyncio.sleep(0.1)
        late = await matching.send(source, b'{"what":"push","n":"late"}')
        new = await matching.send(token_digest(token), b'{"what":"push","n":"new"}')
        (row,) = await matching.decided(new)
        assert (row["outcome"], row["source_id"]) == ("matched", source.id)
        go_on.set()
        (row,) = await matching.decided(in_flight)
        assert row["outcome"] == "matched"
        (row,) = await matching.decided(late)
        # The copy of the configuration may be 2 s old.
        assert (row["outcome"], row["reason"]) in {("unknown_token", "expired"), ("matched", None)}
        await asyncio.sleep(2.1)
        (row,) = await matching.decided(await matching.send(source, b'{"what":"push","n":"last"}'))
        assert (row["outcome"], row["reason"]) == ("unknown_token", "expired")


async def test_an_instance_that_is_deleted_under_load_takes_nothing_after_that(
    matching: Matching, start_service: StartService
) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        llm.delays = {"payload": 0.05}
        await asyncio.to_thread(start_service, "room_matcher", matching.environment(llm.url))
        sent = [await matching.send(source, b'{"what":"push","n":%d}' % number) for number in range(30)]
        await matching.decided(sent[0])
        await matching.query("update instance_room set enabled = false where instance_id = %s", source.instance_id)
        await matching.query("update instances set deleted_at = now() where id = %s", source.instance_id)
        sent += [await matching.send(source, b'{"what":"push","n":%d}' % number) for number in range(30, 40)]
        outcomes = [(await matching.decided(delivery_id))[0]["outcome"] for delivery_id in sent]
        assert set(outcomes) <= {"matched", "room_disabled"}
        await asyncio.sleep(2.1)
        (row,) = await matching.decided(await matching.send(source, b'{"what":"push","n":99}'))
        assert (row["outcome"], row["reason"]) == ("room_disabled", "instance_deleted")
        assert len(await matching.backlog(source.instance_id)) == outcomes.count("matched")


async def test_at_the_cap_events_wait_instead_of_paying(matching: Matching, start_service: StartService) -> None:
    source = await matching.source(await matching.instance(), criteria=["a push"])
    async with ScriptedLlm(script) as llm:
        llm.delays = {"payload": 0.3}
        settings = matching.environment(llm.url, ROOM_MATCHER__BACKLOG_CAP="3")
        sent = [await matching.send(source, b'{"what":"push","n":%d}' % number) for number in range(12)]
        await asyncio.to_thread(start_service, "room_matcher", settings)
        rows = [(await matching.decided(delivery_id))[0] for delivery_id in sent]
        outcomes = [row["outcome"] for row in rows]
        assert (outcomes.count("matched"), outcomes.count("backlog_full")) == (3, 9)
        assert {row["reason"] for row in rows if row["outcome"] == "backlog_full"} == {"pending"}
        assert len(llm.calls) == sum(row["llm_calls"] for row in rows) == 3
