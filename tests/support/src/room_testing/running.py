"""What tests of room-runner stand on: rooms with events and replies, and a supervisor model that follows a script."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final
from uuid import UUID

import psycopg
from aiohttp import web
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from psycopg.rows import dict_row
from pydantic import ValidationError

from room_common.contracts.messages import OutboundMessage, TickCommand, TickReason
from room_common.contracts.topics import OUTBOUND, TICKS, TOPICS
from room_common.identity import new_id
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_testing.matching import ENCRYPTION_KEYS

QUICK: Final[Mapping[str, str]] = {
    "ROOM_RUNNER__CLAIM_SECONDS": "0.2",
    "ROOM_RUNNER__LEASE_SECONDS": "4",
    "ROOM_RUNNER__RENEW_SECONDS": "0.5",
    "ROOM_RUNNER__FENCE_SECONDS": "2",
    "ROOM_RUNNER__SWEEP_SECONDS": "0.5",
    "ROOM_RUNNER__RELAY_SECONDS": "0.2",
    "ROOM_RUNNER__RELAY_TAKEOVER_SECONDS": "0.5",
    "ROOM_RUNNER__PROBE_SECONDS": "0.5",
    "ROOM_RUNNER__BACKOFF_SECONDS": "0.5",
}
"""Intervals of room-runner that let a test see in seconds what takes half a minute."""

_EVENT = re.compile(r"^Event ([0-9a-f-]{36})$", re.MULTILINE)


def events_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ids of the events that a cycle's first user message gives."""
    return _EVENT.findall(str(messages[1]["content"]))


def calls(*tools: tuple[str, Mapping[str, object]]) -> dict[str, Any]:
    """An assistant's message that calls tools."""
    return {
        "content": None,
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(tools)
        ],
    }


def says(text: str) -> dict[str, Any]:
    """An assistant's message that ends a cycle."""
    return {"content": text}


def diligent(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tells the human, then marks every event, then is silent."""
    done = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or []]
    if "send_message_to_human" not in done:
        return calls(("send_message_to_human", {"message": "Here is what happened."}))
    events = events_in(messages)
    if events and "mark_events_completed" not in done:
        return calls(("mark_events_completed", {"event_ids": events}))
    return says("NO_MESSAGE")


Script = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any] | int]


@dataclass(slots=True)
class ScriptedSupervisor:
    """An OpenAI-compatible server on a free port. ``script`` gets the messages and returns an answer or a status.

    ``hold(text)`` makes calls of cycles whose first user message has ``text`` wait until the returned event is set.
    Probes (no tools) are answered ``OK``, or with ``status`` while it is set, as everything is then.
    """

    script: Script = diligent
    status: int | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    probes: int = 0
    url: str = ""
    _holds: dict[str, asyncio.Event] = field(default_factory=dict)
    _hanging: dict[str, asyncio.Event] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    def hold(self, text: str) -> asyncio.Event:
        """Let calls hang."""
        self._hanging[text] = asyncio.Event()
        return self._holds.setdefault(text, asyncio.Event())

    async def hangs(self, text: str) -> None:
        """Return once such a call hangs."""
        async with asyncio.timeout(60):
            await self._hanging[text].wait()

    async def __aenter__(self) -> ScriptedSupervisor:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for event in self._holds.values():
            event.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if "tools" not in body:
            self.probes += 1
            return self._answer(body, self.status or says("OK"))
        self.requests.append(body)
        given = str(body["messages"][1]["content"])
        for text, event in list(self._holds.items()):
            if text in given:
                self._hanging[text].set()
                await event.wait()
        return self._answer(body, self.status or self.script(body["messages"]))

    def _answer(self, body: Mapping[str, Any], answer: dict[str, Any] | int) -> web.Response:
        if isinstance(answer, int):
            return web.json_response({"error": {"message": "scripted"}}, status=answer)
        message = {"role": "assistant", **answer}
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in answer else "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
        )


@dataclass(frozen=True, slots=True)
class SeededRoom:
    """A room with one source and one definition."""

    instance_id: UUID
    source_id: UUID
    definition_id: UUID


class Running:
    """A database, and with a bootstrap address a broker, for room-runner. Close it."""

    def __init__(self, dsn: str, bootstrap: str = "", *, idempotence: bool = False) -> None:
        self.dsn = dsn
        self.bootstrap = bootstrap
        self.idempotence = idempotence
        self._producer: AIOKafkaProducer | None = None
        self._deliveries = 0

    def environment(self, llm_url: str, **more: str) -> Mapping[str, str]:
        """The settings of room-runner for this world, in a hurry."""
        return {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(self.idempotence).lower(),
            "ROOM_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "ROOM_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "ROOM_DATABASE__DSN": self.dsn,
            "ROOM_ENCRYPTION__KEYS": ENCRYPTION_KEYS,
            "ROOM_LLM__BASE_URL": llm_url,
            "ROOM_LLM__MAX_RETRIES": "0",
            **QUICK,
            **more,
        }

    async def open(self) -> None:
        """Make the topics."""
        settings = KafkaSettings(bootstrap_servers=self.bootstrap, replication_factor=1, min_insync_replicas=1)
        await create_topics(settings, TOPICS)
        self._producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await self._producer.start()

    async def close(self) -> None:
        """Let go of the broker."""
        if self._producer is not None:
            await self._producer.stop()

    async def query(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        """Run one statement in its own transaction."""
        async with await psycopg.AsyncConnection.connect(self.dsn, row_factory=dict_row) as conn:
            cursor = await conn.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def room(
        self,
        *,
        channel: str | None = "local",
        enabled: bool = True,
        budget: int | None = 5_000_000,
        cooldown: int = 0,
        interpretation: str = "Tell the human about {{payload.name}}.",
    ) -> SeededRoom:
        """An active instance with a room, a source and a definition."""
        room = SeededRoom(new_id(), new_id(), new_id())
        await self.query(
            "insert into instances (id, slug, name, timezone, token_budget_daily)"
            " values (%s, %s, 'Desk', 'Europe/Rome', %s)",
            room.instance_id,
            f"desk-{room.instance_id.hex[-12:]}",
            budget,
        )
        await self.query(
            "insert into instance_room (instance_id, enabled, prompt, outbound_channel, outbound_target)"
            " values (%s, %s, 'Watch the pipeline.', %s, %s)",
            room.instance_id,
            enabled,
            channel,
            channel and "me",
        )
        await self.query(
            "insert into event_sources (id, instance_id, name, source_type) values (%s, %s, 'CRM', 'generic')",
            room.source_id,
            room.instance_id,
        )
        await self.query(
            "insert into event_definitions"
            " (id, event_source_id, name, matching_prompt, interpretation_prompt, cooldown_seconds)"
            " values (%s, %s, 'Won', 'anything', %s, %s)",
            room.definition_id,
            room.source_id,
            interpretation,
            cooldown,
        )
        return room

    async def event(
        self, room: SeededRoom, body: bytes = b'{"name": "Ada"}', *, attempts: int = 0, age: float = 0.0
    ) -> UUID:
        """A pending event, received ``age`` seconds ago."""
        event_id = new_id()
        await self.query(
            "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body,"
            " content_type, verified, attempts, received_at)"
            " values (%s, %s, %s, %s, %s, %s, 'application/json', true, %s, %s)",
            event_id,
            room.instance_id,
            room.source_id,
            room.definition_id,
            new_id(),
            body,
            attempts,
            datetime.now(UTC) - timedelta(seconds=age),
        )
        return event_id

    async def reply(self, room: SeededRoom, text: str = "What is new?") -> UUID:
        """An unread human message."""
        reply_id = new_id()
        await self.query(
            "insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, received_at)"
            " values (%s, %s, 'local', 'me', %s, %s, now())",
            reply_id,
            room.instance_id,
            text,
            str(reply_id),
        )
        return reply_id

    async def wake(self, room: SeededRoom) -> None:
        """As a tick does."""
        await self.query("update instance_room set wake_at = now() where instance_id = %s", room.instance_id)

    async def tick(self, room: SeededRoom, reason: TickReason = "pending", partition: int | None = None) -> None:
        """Send a tick command, as the scheduler does."""
        assert self._producer is not None
        command = TickCommand(instance_id=room.instance_id, seq=0, reason=reason, issued_at=datetime.now(UTC))
        await self._producer.send_and_wait(
            TICKS, command.encode(), key=str(room.instance_id).encode(), partition=partition
        )

    async def send_tick_bytes(self, value: bytes) -> None:
        """Send what no scheduler would."""
        assert self._producer is not None
        await self._producer.send_and_wait(TICKS, value, key=b"x")

    async def events(self, room: SeededRoom) -> list[dict[str, Any]]:
        """The backlog of a room, oldest first."""
        return await self.query("select * from event_backlog where instance_id = %s order by id", room.instance_id)

    async def cycles(self, room: SeededRoom) -> list[dict[str, Any]]:
        """Its cycles, oldest first."""
        return await self.query(
            "select * from room_cycles where instance_id = %s order by started_at", room.instance_id
        )

    async def messages(self, room: SeededRoom) -> list[dict[str, Any]]:
        """Its outbox, oldest first."""
        return await self.query("select * from outbound_messages where instance_id = %s order by seq", room.instance_id)

    async def state(self, room: SeededRoom) -> dict[str, Any]:
        """Its row."""
        (row,) = await self.query("select * from instance_room where instance_id = %s", room.instance_id)
        return row

    async def activity(self, room: SeededRoom) -> list[str]:
        """Kinds of its activity rows, oldest first."""
        rows = await self.query(
            "select kind from room_activity_log where instance_id = %s order by occurred_at, id", room.instance_id
        )
        return [row["kind"] for row in rows]

    async def published(self) -> list[OutboundMessage]:
        """Every message in ``room.outbound`` up to now; what other tests put there to be unreadable is left out."""
        consumer = AIOKafkaConsumer(
            OUTBOUND, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            ends = await consumer.end_offsets(consumer.assignment())
            found = []
            for partition, end in ends.items():
                deadline = time.monotonic() + 30
                while await consumer.position(partition) < end and time.monotonic() < deadline:
                    batches = await consumer.getmany(partition, timeout_ms=1000)
                    found += [record.value for records in batches.values() for record in records]
            messages = []
            for value in found:
                with suppress(ValidationError):
                    messages.append(OutboundMessage.model_validate_json(value))
            return messages
        finally:
            await consumer.stop()
