"""Cycles without a process: the real code on a real PostgreSQL, with a model that answers in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry

from room_common.llm.port import ChatRequest, Completion, Llm, Message, ToolCall
from room_common.postgres import leases, resuming
from room_common.postgres.database import Database
from room_common.postgres.leases import Backoff
from room_common.postgres.resuming import Swept
from room_runner.cycle import Cycle
from room_runner.desk import Desk
from room_runner.metrics import CycleMetrics
from room_runner.outside import NoTools, Outside
from room_runner.provider import Provider
from room_runner.settings import CycleSettings
from room_testing.running import Running, SeededRoom

Answer = Completion | Exception


def text(said: str) -> Completion:
    """An answer that ends a cycle."""
    return Completion(said, input_tokens=100, output_tokens=10)


def call(*tools: tuple[str, str]) -> Completion:
    """An answer that calls tools: names with arguments."""
    made = tuple(ToolCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(tools))
    return Completion("", made, input_tokens=100, output_tokens=10)


def mark(*ids: UUID) -> tuple[str, str]:
    """A call that completes events."""
    listed = ", ".join(f'"{event}"' for event in ids)
    return "mark_events_completed", f'{{"event_ids": [{listed}], "notes": "done"}}'


def tell(message: str) -> tuple[str, str]:
    """A call that sends a message."""
    return "send_message_to_human", f'{{"message": "{message}"}}'


@dataclass
class FakeLlm:
    """Answers in turn; the last answer is repeated."""

    answers: list[Answer]
    requests: list[ChatRequest] = field(default_factory=list)
    before: Callable[[], Any] | None = None

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer, or raise what is next."""
        if not request.tools:
            return text("OK")
        self.requests.append(request)
        if self.before is not None:
            await self.before()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Stage:
    """Runs cycles of one database."""

    database: Database
    world: Running
    written: list[UUID] = field(default_factory=list)
    outside: Outside = field(default_factory=NoTools)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    def desk(self, llm: Llm, settings: CycleSettings) -> Desk:
        """What a worker would share among its cycles."""
        return Desk(
            self.database,
            Provider(llm, probe_seconds=0.1),
            settings,
            CycleMetrics.build(CollectorRegistry()),
            self.written.append,
            outside=self.outside,
            draining=self.draining,
        )

    async def cycle(self, room: SeededRoom, llm: Llm, **settings: Any) -> Cycle:
        """Wake and claim the room."""
        await self.world.wake(room)
        async with self.database.transaction() as conn:
            lease = await leases.claim(conn, "worker", 30.0)
        assert lease is not None
        return Cycle(self.desk(llm, CycleSettings(**settings)), lease, time.monotonic())

    async def run(self, room: SeededRoom, *answers: Answer, **settings: Any) -> tuple[str, FakeLlm]:
        """One whole cycle."""
        llm = FakeLlm(list(answers))
        return await (await self.cycle(room, llm, **settings)).run(), llm

    async def transcript(self, room: SeededRoom) -> list[Message]:
        """Every message of the room's cycles, in order."""
        rows = await self.world.query(
            "select m.content from cycle_messages m join room_cycles c on c.id = m.cycle_id"
            " where c.instance_id = %s order by c.started_at, m.seq",
            room.instance_id,
        )
        return [row["content"] for row in rows]

    async def lose(self, room: SeededRoom, max_losses: int = 3) -> Swept | None:
        """The worker is gone: its lease runs out and is swept."""
        await self.world.query(
            "update instance_room set lease_until = now() - interval '1 second'"
            " where instance_id = %s and lease_owner is not null",
            room.instance_id,
        )
        async with self.database.transaction() as conn:
            return await resuming.sweep_one(conn, Backoff(), max_losses)
