"""One cycle under one lease: from the claim to its end, or to where another lease takes over (behaviour 9).

Every write is a short lease-checked transaction, and no connection is held while a model thinks. A write whose commit
was not answered is looked up and not repeated. Nothing of a cycle runs, or is in doubt, once ``run`` has returned.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import structlog

from room_common.errors import DependencyUnavailable, LeaseLost
from room_common.identity import new_id
from room_common.llm.spans import PROVIDER
from room_common.postgres import cycles, leases, resuming, rooms
from room_common.postgres.cycles import Ending
from room_common.postgres.leases import Lease, Leased
from room_common.telemetry.tracing import Attributes, context_of, failed, span
from room_runner import endings
from room_runner.conversation import Conversation
from room_runner.desk import Desk
from room_runner.opening import Opening, open_cycle, resume_cycle
from room_runner.outside import OutsideTool
from room_runner.stops import Abandoned, Failed, Suspended
from room_runner.writing import Writer

End = Literal["nothing", "succeeded", "failed", "abandoned", "suspended"]

AGENT: Final = "room"
"""The agent's name in traces."""

_TOOLS_PAUSE: Final = 1.0
_log = structlog.get_logger(__name__)


class Cycle:
    """The cycle of one lease, taken at ``claimed_at`` (monotonic seconds). ``id`` is known once it has begun.

    ``released`` is called as soon as the lease is given back.
    """

    def __init__(
        self, desk: Desk, lease: Lease, claimed_at: float, released: Callable[[], None] = lambda: None
    ) -> None:
        self.id = new_id()
        self.lease = lease
        self._desk = desk
        self._settings = desk.settings
        self._claimed_at = claimed_at
        self._claimed_ns = time.time_ns()
        self._released = released
        self._writer = Writer(desk.database, lease)
        self._opening: Opening | None = None
        self._conversation: Conversation | None = None

    async def run(self) -> End:
        """Run to the end, or to where it has to stop, and release the room. Raises ``LeaseLost``.

        When cancelled it stops where it is: call :meth:`give_back` then.
        """
        try:
            opening = await self._open()
        except LeaseLost:
            raise
        except Exception:
            _log.exception("cycle not begun", instance_id=str(self.lease.instance_id))
            await self._writer.write("finish", lambda leased: endings.refuse(leased, self._settings))
            return "failed"
        if opening is None:
            self._released()
            return "nothing"
        log = _log.bind(instance_id=str(self.lease.instance_id), cycle_id=str(self.id), trace_id=opening.trace_id)
        log.info(
            "cycle resumed" if opening.resumed else "cycle started",
            events=opening.events,
            replies=opening.replies,
            steps=opening.steps,
        )
        end, kind = await self._traced(opening)
        self._count(end, opening)
        log.info("cycle ended" if end != "suspended" else "cycle suspended", status=end, kind=kind)
        if end != "suspended":
            await self._look_again()
        return end

    async def _traced(self, opening: Opening) -> tuple[End, str | None]:
        """The cycle as a span, child of the first event's trace and linked to what else led to it."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": AGENT,
            "gen_ai.conversation.id": opening.conversation_id,
            "room.cycle.id": str(self.id),
            "room.instance.id": str(self.lease.instance_id),
            "room.cycle.resumed": opening.resumed,
        }
        with span(
            f"invoke_agent {AGENT}",
            parent=context_of(opening.traceparent),
            links=(*opening.linked, self.lease.woken_by),
            attributes=attributes,
            start_ns=self._claimed_ns,
        ) as cycle:
            end, kind = await self._to_the_end(opening)
            cycle.set_attribute("room.cycle.status", end)
            if end == "failed":
                failed(cycle, kind or "unforeseen")
            return end, kind

    async def _to_the_end(self, opening: Opening) -> tuple[End, str | None]:
        settings = self._settings
        deadline = self._claimed_at + settings.deadline_seconds - opening.used_seconds
        try:
            conversation = Conversation(self._desk, self._writer, opening, await self._outside(), deadline)
            self._conversation = conversation
            final = await conversation.run()
            await self._end(
                "succeeded",
                lambda leased: endings.succeed(leased, opening, settings, final, sent=conversation.sent),
            )
        except LeaseLost:
            raise
        except Suspended as stop:
            await self._release(stop.kind)
            return "suspended", stop.kind
        except Abandoned as stop:
            kind = stop.kind
            await self._end("abandoned", lambda leased: cycles.abandon(leased, self.id, kind, None))
            return "abandoned", kind
        except Exception as error:
            if isinstance(error, Failed):
                kind = error.kind
            else:
                kind = "unforeseen"
                _log.exception("cycle failed", cycle_id=str(self.id))
            await self._end("failed", lambda leased: endings.fail(leased, opening, settings, kind))
            return "failed", kind
        return "succeeded", None

    async def give_back(self, kind: str) -> None:
        """Release the room, for a cycle whose ``run`` was cancelled; what has begun is resumed by the next claim.

        Raises ``LeaseLost`` when there is nothing to give back any more.
        """
        await self._release(kind)

    # -- beginning

    async def _open(self) -> Opening | None:
        nonce = os.urandom(8).hex()

        async def write(leased: Leased) -> Opening | None:
            # Also the look after a commit without an answer: then the running cycle is the one that was begun by it.
            opening = await resume_cycle(leased)
            if opening is None:
                opening = await open_cycle(leased, self.id, nonce, self._settings)
            elif self._opening is not None:
                opening = self._opening
            self._opening = opening
            if opening is not None:
                self.id = opening.cycle_id
            return opening

        try:
            opening = await self._writer.write("open", write)
        except LeaseLost:
            # Releasing is the only thing of an opening that ends the lease; a first try of it may have committed.
            if self._opening is None:
                return None
            raise
        if opening is not None and opening.resumed:
            self._desk.metrics.resumed.inc()
        elif opening is not None:
            for received_at in opening.received:
                age = (opening.began_at - received_at).total_seconds()
                self._desk.metrics.event_age.labels("taken").observe(max(0.0, age))
        return opening

    async def _outside(self) -> Mapping[str, OutsideTool]:
        while True:
            try:
                return await self._desk.outside.tools(self.lease.instance_id)
            except DependencyUnavailable as error:
                _log.warning("tools of a cycle not read", reason=str(error), cycle_id=str(self.id))
            await asyncio.sleep(_TOOLS_PAUSE)

    # -- ending

    async def _end(self, status: Ending, settle: Callable[[Leased], Awaitable[None]]) -> None:
        """Settle and release in one transaction. After a commit without an answer the row says whether it happened."""

        async def write(leased: Leased) -> None:
            await settle(leased)
            await leases.release(leased, last_cycle_id=self.id)

        try:
            await self._writer.write("finish", write)
        except LeaseLost:
            if await self._writer.status(self.id) != status or status == "abandoned":
                raise
        self._released()
        self._desk.written(self.id)

    async def _release(self, kind: str) -> None:
        """Leave the cycle as it is to the next claim."""
        waited = 0.0 if self._conversation is None else self._conversation.waited

        async def write(leased: Leased) -> None:
            await resuming.pause(leased, self.id, waited)
            await leases.release(leased, wake=True)

        await self._writer.write("release", write)
        self._released()
        self._desk.metrics.suspended.labels(kind).inc()

    async def _look_again(self) -> None:
        """What came in during the cycle wakes the room at once. The next tick does the same, so trouble is fine."""
        try:
            async with self._desk.database.transaction() as conn:
                await rooms.wake_if_work(conn, self.lease.instance_id)
        except DependencyUnavailable as error:
            _log.info("room not looked at again", reason=str(error), instance_id=str(self.lease.instance_id))

    def _count(self, end: End, opening: Opening) -> None:
        if end == "suspended":
            return
        metrics = self._desk.metrics
        metrics.cycles.labels(end).inc()
        seconds = opening.used_seconds + time.monotonic() - self._claimed_at
        metrics.seconds.observe(seconds)
        if end == "succeeded":
            for received_at in opening.received:
                age = (opening.began_at - received_at).total_seconds() + seconds
                metrics.event_age.labels("cycle_ended").observe(max(0.0, age))
