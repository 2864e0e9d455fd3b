"""A definition is tried on what came in, and nothing is decided by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.llm.port import EventRejected
from room_testing.administering import Administering, ListedRoom, opened

pytestmark = pytest.mark.integration

DEFINITION = {"name": "won", "match": "a deal was won"}
WRITTEN = ("webhook_deliveries", "webhook_dedup", "event_backlog", "token_usage", "room_activity_log")


@pytest.fixture
async def world(database_dsn: str) -> AsyncIterator[Administering]:
    async with opened(database_dsn) as world:
        yield world


async def seeded(world: Administering, bodies: list[str], outcome: str = "no_match", said: str = "no") -> list[UUID]:
    """A room whose source ``crm`` has one delivery for each body, and no other."""
    room: ListedRoom = await world.listed("desk")
    await world.query("delete from webhook_deliveries")
    ids = []
    for number, body in enumerate(bodies):
        ids.append(new_id())
        verdict = [{"definition_id": str(room.definition_id), "verdict": said, "name": "won"}]
        await world.query(
            "insert into webhook_deliveries (received_at, id, source_id, instance_id, outcome, verdicts, size, topic,"
            ' "partition", "offset") values (now() - make_interval(secs => %s), %s, %s, %s, %s, %s, 1, \'t\', 0, %s)',
            number,
            ids[-1],
            room.source_id,
            room.instance_id,
            outcome,
            json.dumps(verdict),
            number,
        )
        world.records.keep(ids[-1], body.encode(), offset=number)
    return ids


async def tried(world: Administering, status: int = 200, **body: Any) -> Any:
    answer = await world.call("POST", "/definitions/test", json={"definition": DEFINITION, "source": "crm"} | body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def counts(world: Administering) -> dict[str, int]:
    found = {}
    for table in WRITTEN:
        [row] = await world.query(f"select count(*) as n from {table}")
        found[table] = row["n"]
    return found


def yes_to(word: str) -> Any:
    return lambda prompt: f"Yes, it says {word}." if word in prompt.rpartition("Criterion:")[0] else "no"


async def test_changed_verdicts_are_shown_with_why_and_cost(world: Administering) -> None:
    ids = await seeded(world, ['{"stage": "closedwon"}', '{"stage": "open"}', '{"stage": "closedwon", "n": 2}'])
    world.llm.answer = yes_to("closedwon")
    before = await counts(world)
    answer = await tried(world)
    assert await counts(world) == before
    assert (answer["known"], answer["tested"], answer["changed"], answer["calls"]) == (True, 3, 2, 3)
    assert (answer["input_tokens"], answer["output_tokens"], answer["cached_tokens"]) == (300, 6, 180)
    assert answer["stopped"] is None
    rows = answer["items"]
    assert [row["delivery_id"] for row in rows] == [str(one) for one in ids]
    assert [(row["before"], row["after"], row["changed"]) for row in rows] == [
        ("no", "yes", True),
        ("no", "no", False),
        ("no", "yes", True),
    ]
    assert rows[0]["why"] == "Yes, it says closedwon."
    assert all(str(request.messages[-1]["content"]).endswith("a deal was won") for request in world.llm.requests)
    assert {(request.tier, request.temperature, request.model) for request in world.llm.requests} == {
        ("fast", 0.0, None)
    }


async def test_why_is_cut_at_80_characters(world: Administering) -> None:
    await seeded(world, ["{}"])
    world.llm.answer = lambda _: "x" * 500
    [row] = (await tried(world))["items"]
    assert row["why"] == "x" * 80 and row["after"] == "unclear" and row["changed"] is False


async def test_a_new_definition_was_never_asked(world: Administering) -> None:
    await seeded(world, ["{}"], "matched", said="yes")
    world.llm.answer = lambda _: "yes"
    answer = await tried(world, definition={"name": "another", "match": "anything"})
    assert answer["known"] is False
    assert [(row["before"], row["changed"]) for row in answer["items"]] == [(None, True)]


async def test_the_latest_are_taken_and_only_those_that_can_be_asked_about(world: Administering) -> None:
    ids = await seeded(world, [f'{{"n": {number}}}' for number in range(5)])
    await world.query("update webhook_deliveries set outcome = 'duplicate' where id = %s", ids[0])
    await world.query("update webhook_deliveries set outcome = 'bad_signature' where id = %s", ids[1])
    answer = await tried(world, last=2)
    assert [row["delivery_id"] for row in answer["items"]] == [str(ids[2]), str(ids[3])]


async def test_what_cannot_be_read_back_is_counted(world: Administering) -> None:
    ids = await seeded(world, ["{}", "NaN", "{}"])
    del world.records.kept[next(place for place in world.records.kept if place.offset == 0)]
    answer = await tried(world)
    assert (answer["tested"], answer["unreadable"], answer["calls"]) == (1, 2, 1)
    assert {row["delivery_id"]: row["error"] for row in answer["items"]} == {
        str(ids[0]): "gone",
        str(ids[1]): "undecodable",
        str(ids[2]): None,
    }


async def test_a_sample_is_tried_without_any_delivery(world: Administering) -> None:
    await seeded(world, ["{}"])
    world.llm.answer = yes_to("x-github-event: star")
    body = '[{"eventId": 1}, {"eventId": 2}]'
    answer = await tried(world, sample={"body": body, "headers": {"X-GitHub-Event": "star", "Cookie": "secret"}})
    assert [(row["item"], row["after"], row["before"]) for row in answer["items"]] == [
        (0, "yes", None),
        (1, "yes", None),
    ]
    assert not any("secret" in str(request.messages) for request in world.llm.requests)
    await tried(world, 422, sample={"body": "NaN"})
    await tried(world, 422, sample={"body": "{}"}, last=3)


async def test_a_prompt_the_model_refuses_is_a_row_and_not_the_end(world: Administering) -> None:
    await seeded(world, ['{"a": 1}', '{"a": 2}'])
    world.llm.answer = lambda prompt: EventRejected("context_length") if '"a":1' in prompt else "yes"
    answer = await tried(world)
    assert (answer["tested"], answer["failed"]) == (1, 1)
    assert answer["items"][0]["error"] == "context_length"


async def test_the_provider_away_is_503_or_the_end_of_the_test(world: Administering) -> None:
    await seeded(world, [f'{{"n": {number}}}' for number in range(60)])
    world.llm.answer = lambda _: DependencyUnavailable("llm", "connect")
    await tried(world, 503)
    world.llm.answer = lambda prompt: DependencyUnavailable("llm", "timeout") if '"n":55' in prompt else "no"
    answer = await tried(world)
    assert answer["stopped"] == "llm: timeout"
    assert 50 <= answer["tested"] < 60


async def test_calls_at_once_are_bounded(world: Administering) -> None:
    await seeded(world, ["{}"] * 20)
    await tried(world)
    assert world.llm.most == 4


async def test_a_test_ends_in_time_with_what_was_answered(database_dsn: str) -> None:
    async with opened(database_dsn, test_seconds=0.5) as world:
        await seeded(world, ['{"n": "quick"}', '{"n": "never"}'])
        world.llm.answer = lambda prompt: "no" if "quick" in prompt else None
        answer = await tried(world)
    assert answer["stopped"] == "time"
    assert [row["after"] for row in answer["items"]] == ["no"]
    assert world.llm.in_flight == 0


async def test_too_many_tests_are_429(world: Administering) -> None:
    await seeded(world, ["{}"])
    answers = [
        await world.call("POST", "/definitions/test", json={"definition": DEFINITION, "source": "crm"})
        for _ in range(7)
    ]
    assert [answer.status_code for answer in answers] == [200] * 6 + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 10
    assert answers[-1].headers["content-type"] == "application/problem+json"


async def test_too_many_tests_at_once_are_429(world: Administering) -> None:
    await seeded(world, ["{}"])
    world.llm.answer = lambda _: None
    running = [asyncio.create_task(tried(world)) for _ in range(2)]
    while world.llm.in_flight < 2:
        await asyncio.sleep(0.01)
    await tried(world, 429)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_which_source_is_meant(world: Administering) -> None:
    await seeded(world, ["{}"])
    await world.listed("other")
    await tried(world, 409)
    assert (await tried(world, room="desk"))["room"] == "desk"
    [row] = [row for row in (await world.get("/instances/desk/sources"))["items"] if row["name"] == "crm"]
    assert (await tried(world, source=row["id"]))["room"] == "desk"
    await tried(world, 404, source="nothing")
    await tried(world, 404, room="nowhere")
    for wrong in ({"last": 0}, {"last": 501}, {"definition": {"name": "x"}}, {"room": "A"}):
        await tried(world, 422, **wrong)
