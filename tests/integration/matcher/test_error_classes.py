"""What becomes of a delivery for each way in which a provider can fail, at a server that fails so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from psycopg.types.json import Jsonb

from room_testing.matching import Matching, SeededSource, eventually
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess
from room_testing.rehearsal import RehearsalModel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CRITERION = 'It is a "push"'

HOLDS = {
    "rate_limit": ({}, "llm_rate_limit"),
    "rate_limit with Retry-After": ({"retry_after": 2}, "llm_rate_limit"),
    "server_error": ({}, "llm_server_error"),
    "hang": ({}, "llm_timeout"),
    "reset": ({}, "llm_connect"),
    "malformed": ({}, "llm_malformed"),
    "unauthorized": ({}, "llm_unauthorized"),
    "model_missing": ({}, "llm_model_missing"),
}
DEAD = {
    "refusal": "refused",
    "truncated": "truncated",
    "content_filter": "content_filter (400)",
    "context_length": "context_length (400)",
    "empty_choices": "no_choices",
}


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[RehearsalModel]:
    server = RehearsalModel(tmp_path)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


async def held(service: ServiceProcess, reason: str) -> None:
    """Return once /readyz and the gauge both say ``reason``, while /livez stays 200."""
    address = f"http://127.0.0.1:{service.operations_port}"
    async with httpx2.AsyncClient() as client:

        async def said() -> bool:
            ready, metrics = await client.get(f"{address}/readyz"), await client.get(f"{address}/metrics")
            gauge = f'room_held{{group="room-matcher",reason="{reason}"}} 1.0'
            return ready.status_code == 503 and "held: llm" in ready.text and gauge in metrics.text

        await eventually(said, f"the hold for {reason}")
        assert (await client.get(f"{address}/livez")).status_code == 200


async def goes_on(service: ServiceProcess) -> None:
    """Return once nothing is held."""

    async def ready() -> bool:
        return service.answers()

    await eventually(ready, "the end of the hold")


async def start(start_service: StartService, matching: Matching, model: RehearsalModel) -> ServiceProcess:
    environment = matching.environment(model.url, ROOM_LLM__FAST_TIMEOUT_SECONDS="1")
    return await asyncio.to_thread(start_service, "room_matcher", environment)


def body(text: str) -> bytes:
    return b'{"what":"push","case":"%s"}' % text.encode()


async def test_a_provider_at_fault_is_waited_for(
    matching: Matching, start_service: StartService, model: RehearsalModel
) -> None:
    source = await matching.source(await matching.instance(), criteria=[CRITERION])
    service = await start(start_service, matching, model)
    for case, (more, reason) in HOLDS.items():
        await model.faults({"kind": case.split()[0], "times": None, **more})
        waiting = [await matching.send(source, body(f"{case} {number}")) for number in range(2)]
        await held(service, reason)
        assert [await matching.outcomes(delivery_id) for delivery_id in waiting] == [[], []]
        await model.faults()
        await match(matching, *waiting)
        await goes_on(service)
    await asyncio.to_thread(model.kill)
    waiting = [await matching.send(source, body("refused connection"))]
    await held(service, "llm_connect")
    await model.restarted()
    await match(matching, *waiting)
    assert await dead(matching, source) == 0


async def match(matching: Matching, *deliveries: object) -> None:
    for delivery_id in deliveries:
        (row,) = await matching.decided(delivery_id)  # type: ignore[arg-type]
        assert (row["outcome"], row["reason"]) == ("matched", None)


async def dead(matching: Matching, source: SeededSource) -> int:
    rows = await matching.query(
        "select count(*)::int as n from webhook_deliveries where source_id = %s and outcome = 'dead'", source.id
    )
    return int(rows[0]["n"])


async def test_an_event_at_fault_is_dead_and_the_next_one_is_not(
    matching: Matching, start_service: StartService, model: RehearsalModel
) -> None:
    source = await matching.source(await matching.instance(), criteria=[CRITERION])
    service = await start(start_service, matching, model)
    for kind, reason in DEAD.items():
        await model.faults({"kind": kind, "times": None, "when": f"case {kind}"})
        at_fault = await matching.send(source, body(f"case {kind}"), partition=1)
        innocent = await matching.send(source, body(f"after {kind}"), partition=1)
        (row,) = await matching.decided(at_fault)
        assert (row["outcome"], row["reason"], row["llm_calls"]) == ("dead", reason, 1)
        (copy,) = await matching.dead_letters(at_fault)
        assert copy["error"].decode().split(":")[0] == reason.split()[0]
        await match(matching, innocent)
        assert service.answers()
    assert len(await matching.backlog(source.instance_id)) == len(DEAD)


async def test_one_429_is_over_before_anybody_notices(
    matching: Matching, start_service: StartService, model: RehearsalModel
) -> None:
    source = await matching.source(await matching.instance(), criteria=[CRITERION])
    environment = matching.environment(model.url, ROOM_LLM__MAX_RETRIES="2", ROOM_LLM__RETRY_BASE_SECONDS="0.05")
    service = await asyncio.to_thread(start_service, "room_matcher", environment)
    await model.faults({"kind": "rate_limit", "retry_after": 0}, {"kind": "server_error"})
    await match(matching, await matching.send(source, body("passing")))
    assert service.answers()


async def test_an_instances_own_model_that_is_missing_is_replaced_and_told(
    matching: Matching, start_service: StartService, model: RehearsalModel
) -> None:
    instance = await matching.instance()
    await matching.query("update instances set models = %s where id = %s", Jsonb({"fast": "own-model"}), instance)
    source = await matching.source(instance, criteria=[CRITERION])
    await start(start_service, matching, model)
    await model.faults({"kind": "model_missing", "times": None, "when": "own-model"})
    await match(matching, await matching.send(source, body("override")))
    rows = await matching.query("select kind, severity from room_activity_log where instance_id = %s", instance)
    assert {"kind": "error", "severity": "warning"} in rows
