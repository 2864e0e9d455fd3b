"""A single call that the provider always fails at: it stops nobody else, and is given up in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from psycopg.types.json import Jsonb

from room_testing.matching import Matching
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess
from room_testing.rehearsal import RehearsalModel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KINDS = {"rate_limit": "rate_limit", "server_error": "server_error", "hang": "timeout", "malformed": "malformed"}


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[RehearsalModel]:
    server = RehearsalModel(tmp_path)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


async def start(start_service: StartService, matching: Matching, model: RehearsalModel) -> ServiceProcess:
    environment = matching.environment(
        model.url,
        ROOM_LLM__FAST_TIMEOUT_SECONDS="1",
        ROOM_MATCHER__PROBE_SECONDS="300",  # one hold, and nothing would be decided in time
        ROOM_MATCHER__CALL_PATIENCE_SECONDS="0",
    )
    return await asyncio.to_thread(start_service, "room_matcher", environment)


async def metrics(service: ServiceProcess) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{service.operations_port}/metrics")).text


def body(text: str) -> bytes:
    return b'{"what":"push","case":"%s"}' % text.encode()


async def test_calls_that_always_fail_are_dead_and_all_others_are_decided_meanwhile(
    matching: Matching, start_service: StartService, model: RehearsalModel
) -> None:
    source = await matching.source(await matching.instance(), criteria=['It is a "push"'])
    service = await start(start_service, matching, model)
    faults: list[dict[str, object]] = [{"kind": kind, "times": None, "when": f"case {kind}"} for kind in KINDS]
    await model.faults(*faults)
    at_fault = {kind: await matching.send(source, body(f"case {kind}"), partition=1) for kind in KINDS}
    for number in range(10):
        (row,) = await matching.decided(await matching.send(source, body(f"well {number}"), partition=1))
        assert row["outcome"] == "matched"
    for kind, delivery_id in at_fault.items():
        (row,) = await matching.decided(delivery_id)
        assert (row["outcome"], row["reason"]) == ("dead", KINDS[kind])
        assert row["llm_calls"] >= 5
        (copy,) = await matching.dead_letters(delivery_id)
        assert copy["error"].decode().split(":")[0] == KINDS[kind]
    assert service.answers()
    text = await metrics(service)
    assert all(f'room_retried_model_calls{{kind="{kind}"}} 0.0' in text for kind in KINDS.values())
    assert 'room_held{group="room-matcher"' not in text


@pytest.mark.parametrize("kind", ["rate_limit", "server_error"])
async def test_an_instances_own_model_that_is_overloaded_is_replaced_and_told(
    matching: Matching, start_service: StartService, model: RehearsalModel, kind: str
) -> None:
    instance = await matching.instance()
    await matching.query("update instances set models = %s where id = %s", Jsonb({"fast": "own-model"}), instance)
    source = await matching.source(instance, criteria=['It is a "push"'])
    service = await start(start_service, matching, model)
    await model.faults({"kind": kind, "times": None, "when": "own-model"})
    (row,) = await matching.decided(await matching.send(source, body("override")))
    assert row["outcome"] == "matched"
    rows = await matching.query("select kind, severity from room_activity_log where instance_id = %s", instance)
    assert {"kind": "error", "severity": "warning"} in rows
    assert service.answers()
