"""All services as processes on real parts: a signed webhook becomes a message, a reply starts the next cycle.

Meanwhile they export their traces, to a peer of the test or, where ``ROOM_TEST_OTLP_COLLECTOR`` names its program, to a
real OpenTelemetry Collector in front of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from room_common.contracts.topics import TOPICS
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_local.parts.addresses import HOST, free_port
from room_local.parts.probe import http_status
from room_testing.fake_peer import FakeInbox
from room_testing.matching import eventually
from room_testing.otlp_receiver import OtlpReceiver
from room_testing.plugin import StartService
from room_testing.processes import ServiceProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SECRET = "hook-secret"
TRACE, OTHER, CALLER = "7a" * 16, "7b" * 16, "7c" * 8
FAST, STANDARD = "gpt-4.1-mini", "gpt-4.1"
COLLECTOR = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
processors:
  batch:
    timeout: 200ms
exporters:
  otlphttp:
    endpoint: {url}
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      processors: [batch]
      exporters: [otlphttp]
"""
OPERATOR = "operator-of-the-whole-path"

ROOM = {
    "version": 1,
    "name": "Build desk",
    "slug": "build-desk",
    "mandate": "Watch the builds and tell the team when one fails.",
    "timezone": "Europe/Rome",
    "channel": {"type": "local", "target": "Ada"},
    "sources": [
        {
            "name": "Builds",
            "type": "github",
            "secrets": [{"env": "HOOK_SECRET"}],
            "definitions": [
                {
                    "name": "Failed build",
                    "match": 'The conclusion is "failure".',
                    "interpret": "Say which workflow failed: {{payload.workflow_run.name}}.",
                }
            ],
        }
    ],
}


class Rehearsal(ServiceProcess):
    """The rehearsal model as a process."""

    def __init__(self, folder: Path) -> None:
        super().__init__("room_local.rehearsal", {}, folder)
        self.port = free_port()

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", self.package, "--port", str(self.port)]

    def answers(self) -> bool:
        return http_status(HOST, self.port, "/") == 200


def signed(body: bytes, secret: str = SECRET) -> Mapping[str, str]:
    mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "workflow_run",
        "X-Hub-Signature-256": f"sha256={mac}",
    }


def build(name: str, conclusion: str) -> bytes:
    return json.dumps({"action": "completed", "workflow_run": {"name": name, "conclusion": conclusion}}).encode()


async def test_a_signed_webhook_becomes_a_message_and_a_reply_the_next_cycle(
    database_dsn: str,
    kafka_bootstrap: str,
    kafka_idempotence: bool,
    redis_url: str,
    tmp_path: Path,
    start_service: StartService,
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka_bootstrap, replication_factor=1, min_insync_replicas=1)
    await create_topics(settings, TOPICS)
    model, ports = Rehearsal(tmp_path), {"ingest": free_port(), "admin": free_port()}
    ingest, admin = (f"http://{HOST}:{ports[name]}" for name in ("ingest", "admin"))
    async with (
        FakeInbox() as inbox,
        OtlpReceiver() as traces,
        collector_before(traces.url, tmp_path) as endpoint,
        httpx.AsyncClient(trust_env=False, timeout=30) as client,
    ):
        await asyncio.to_thread(model.start)
        environment = {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(kafka_idempotence).lower(),
            "ROOM_DATABASE__DSN": database_dsn,
            "ROOM_REDIS__URL": redis_url,
            "ROOM_ENCRYPTION__KEYS": "e1:" + "11" * 32,
            "ROOM_TOKEN_KEYS": "t1:" + "22" * 32,
            "ROOM_PUBLIC_URL": ingest,
            "ROOM_LLM__BASE_URL": f"http://{HOST}:{model.port}/v1",
            "ROOM_INGEST__HOST": HOST,
            "ROOM_INGEST__PORT": str(ports["ingest"]),
            "ROOM_ADMIN__HOST": HOST,
            "ROOM_ADMIN__PORT": str(ports["admin"]),
            "ROOM_ADMIN__BOOTSTRAP_TOKEN": OPERATOR,
            "ROOM_SCHEDULER__TICK_SECONDS": "1",
            "ROOM_RUNNER__RELAY_SECONDS": "0.2",
            "ROOM_OUTBOUND__LOCAL_INBOX_URL": inbox.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        services = [
            start_service(package, environment, wait=False)
            for package in (
                "room_admin",
                "room_ingest",
                "room_matcher",
                "room_scheduler",
                "room_runner",
                "room_outbound",
            )
        ]
        try:
            for service in services:
                await asyncio.to_thread(service.wait_ready)
            urls = await follow(client, ingest, admin, inbox)
            await check_traces(traces)
            shown = repr(traces.accepted)
            hidden = [SECRET, OPERATOR, "Nightly", "Anything else", *(url.rpartition("/")[2] for url in urls)]
            assert not [text for text in hidden if text in shown]
            for service in services:
                assert SECRET not in service.output() and OPERATOR not in service.output()
        finally:
            await asyncio.to_thread(model.stop)


async def follow(client: httpx.AsyncClient, ingest: str, admin: str, inbox: FakeInbox) -> list[str]:
    """Apply the room, post, wait for the message, answer it, wait for the next cycle. Returns the URLs posted to."""
    client.headers["Authorization"] = f"Bearer {OPERATOR}"
    answer = await client.post(f"{admin}/api/v1/apply", json={"room": ROOM, "secrets": {"Builds": [SECRET]}})
    assert answer.status_code == 200, answer.text
    urls = {made["kind"]: made["url"] for made in answer.json()["urls"]}

    async def items(path: str, **filters: str) -> list[dict[str, Any]]:
        found = await client.get(f"{admin}/api/v1/{path}", params={"room": "build-desk", **filters})
        assert found.status_code == 200, found.text
        return list(found.json()["items"])

    broken, fine, forged = build("Nightly", "failure"), build("Weekly", "success"), build("Forged", "failure")
    traced = {**signed(broken), "traceparent": f"00-{TRACE}-{CALLER}-01"}
    for body, headers in ((broken, traced), (fine, signed(fine)), (forged, signed(forged, "other"))):
        posted = await client.post(urls["source"], content=body, headers=headers)
        assert (posted.status_code, posted.json()) == (200, {"ok": True})

    async def delivered() -> bool:
        return bool(inbox.accepted)

    await eventually(delivered, "the message", 120)
    assert {row["outcome"] for row in await items("deliveries")} == {"matched", "no_match", "bad_signature"}
    assert "Nightly" in " ".join(message["text"] for message in inbox.accepted)
    assert {(message["room"], message["target"]) for message in inbox.accepted} == {("build-desk", "Ada")}

    async def at_rest() -> list[dict[str, Any]]:
        cycles = await items("cycles")
        return cycles if all(cycle["status"] != "running" for cycle in cycles) else []

    before = await eventually(at_rest, "the end of the cycle")
    reply = {"sender": "ada", "text": "Thanks. Anything else?", "id": "r1"}
    for _ in range(2):
        posted = await client.post(urls["channel"], json=reply, headers={"traceparent": f"00-{OTHER}-{CALLER}-01"})
        assert posted.status_code == 200

    async def answered() -> bool:
        return [row["status"] for row in await items("inbox")] == ["read"]

    await eventually(answered, "the cycle of the reply", 120)
    after = await eventually(at_rest, "the end of the second cycle")
    assert len(after) == len(before) + 1 and {cycle["status"] for cycle in after} == {"succeeded"}
    assert [row["status"] for row in await items("backlog")] == ["completed"]
    assert [row["trace_id"] for row in await items("backlog")] == [TRACE]
    assert {cycle["trace_id"] for cycle in after} == {TRACE, OTHER}

    async def all_sent() -> bool:
        return all(row["status"] == "sent" for row in await items("messages"))

    await eventually(all_sent, "the delivery of every message")
    assert len(inbox.accepted) == len(await items("messages"))
    return list(urls.values())


async def check_traces(traces: OtlpReceiver) -> None:
    """One trace from the request to the provider; what a batch or the clock led to is linked."""
    request = ("?", "POST /webhooks/{token}", "send room.webhooks.raw", "process room.webhooks.raw", "decide item")
    verdict = (*request, "verdict", f"chat {FAST}")
    cycle = (*request, "invoke_agent room")
    message = (*cycle, "execute_tool send_message_to_human", "send room.outbound", "process room.outbound")
    provider = (*message, "deliver message", "POST")
    done = (*cycle, "execute_tool mark_events_completed")
    answer = ("?", "POST /channels/{channel}/{token}", "send room.replies.raw", "process room.replies.raw")
    wanted: dict[str, set[tuple[str, ...]]] = {
        TRACE: {verdict, (*cycle, f"chat {STANDARD}"), provider, done},
        OTHER: {(*answer, "invoke_agent room")},
    }

    async def arrived() -> bool:
        return all(paths <= traces.paths(trace) for trace, paths in wanted.items())

    try:
        await eventually(arrived, "the traces", 20)
    except TimeoutError:
        raise AssertionError(sorted(traces.paths(TRACE) | traces.paths(OTHER))) from None

    (received,) = traces.named("POST /webhooks/{token}", TRACE)
    assert (received.parent, received.kind, received.service) == (CALLER, "server", "room-ingest")
    assert received.attributes["http.route"] == "/webhooks/{token}"
    assert received.attributes["http.response.status_code"] == 200
    (sent,) = traces.named("send room.webhooks.raw", TRACE)
    (handled,) = traces.named("process room.webhooks.raw", TRACE)
    assert (sent.kind, handled.kind, handled.service) == ("producer", "consumer", "room-matcher")
    assert handled.attributes["messaging.consumer.group.name"] == "room-matcher"
    (decided,) = traces.named("decide item", TRACE)
    assert decided.attributes["room.outcome"] == "matched"
    (asked,) = traces.named(f"chat {FAST}", TRACE)
    assert asked.kind == "client" and asked.attributes["gen_ai.usage.input_tokens"] > 0
    (cycled,) = traces.named("invoke_agent room", TRACE)
    assert cycled.attributes["room.cycle.status"] == "succeeded"
    # The tick that woke the room is a trace of its own: it came from the clock and woke whoever had work.
    wakers = {(span.trace_id, span.id): span for span in traces.named("process room.ticks")}
    if cycled.links:  # it may also have been awake already, by the look after the claim of another cycle
        assert set(cycled.links) <= wakers.keys()
    (posted,) = [span for span in traces.named("POST", TRACE) if span.service == "room-outbound"]
    assert (posted.kind, posted.attributes["http.response.status_code"]) == ("client", 201)
    assert traces.named("emit ticks") and traces.named("POST /api/v1/apply")
    assert not [span for span in traces.accepted if "exception" in span.events]


@asynccontextmanager
async def collector_before(url: str, folder: Path) -> AsyncIterator[str]:
    """Where to send traces: ``url`` itself, or a collector that sends them on."""
    program = os.environ.get("ROOM_TEST_OTLP_COLLECTOR")
    if program is None:
        yield url
        return
    port = free_port()
    config = folder / "collector.yaml"
    config.write_text(COLLECTOR.format(port=port, url=url))
    process = await asyncio.create_subprocess_exec(program, "--config", str(config))
    try:

        async def listens() -> bool:
            return await asyncio.to_thread(http_status, HOST, port, "/v1/traces") is not None

        await eventually(listens, "the collector", 30)
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        await process.wait()
