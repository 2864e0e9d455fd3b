"""One cycle: from the lease to its end (behaviour 9).

Every write is a short lease-checked transaction, and no connection is held while a model thinks. A write whose commit
was not answered is looked up and not repeated. Nothing of a cycle runs, or is in doubt, once ``run`` has returned.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar
from uuid import UUID

import structlog

from room_common.errors import DependencyUnavailable, LeaseLost
from room_common.faults import crash_point
from room_common.identity import new_id
from room_common.llm.port import ChatRequest, Completion, EventRejected, Message, ToolCall
from room_common.postgres import activity, cycles, events, inbox, leases, outbox, rooms, usage
from room_common.postgres.cycles import Ending
from room_common.postgres.database import Database
from room_common.postgres.leases import Lease, Leased, lease_transaction
from room_runner.domain import prompt
from room_runner.domain.answers import MAX_CALLS, spoken, storable
from room_runner.domain.tokens import Estimator, prompt_tokens, text_tokens
from room_runner.domain.tools import TOOLS, descriptions
from room_runner.metrics import CycleMetrics
from room_runner.opening import Opening, open_cycle, spent
from room_runner.provider import Provider
from room_runner.settings import CycleSettings
from room_runner.toolbox import Toolbox

T = TypeVar("T")
End = Literal["nothing", "succeeded", "failed", "abandoned"]

_FIRST_PAUSE: Final = 0.2
_LAST_PAUSE: Final = 5.0
_LAST_CALL_PAUSE: Final = 30.0
_UNMARKED: Final = "the cycle ended without a decision on this event"
_log = structlog.get_logger(__name__)


class _Stop(Exception):
    """The cycle ends before the model has ended it. ``kind`` is bounded."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class _Failed(_Stop):
    """By its own fault: an attempt of its events, a failure of its room."""


class _GivenBack(_Stop):
    """By nobody's fault: what is undecided waits as before."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What cycles of one process share. ``written`` is told of each cycle that has committed a message."""

    database: Database
    provider: Provider
    settings: CycleSettings
    metrics: CycleMetrics
    written: Callable[[UUID], None]


class Cycle:
    """The cycle of one lease, taken at ``claimed_at`` (monotonic seconds)."""

    def __init__(self, desk: Desk, lease: Lease, claimed_at: float) -> None:
        self.id = new_id()
        self.lease = lease
        self._desk = desk
        self._settings = desk.settings
        self._claimed_at = claimed_at
        self._deadline = claimed_at + desk.settings.deadline_seconds
        self._opening: Opening | None = None
        self._messages: list[Message] = []
        self._estimator = Estimator()
        self._sent = False
        self._told_of_fallback = False

    async def run(self) -> End:
        """Run to the end and release the room. Raises ``LeaseLost`` when somebody else has it.

        When cancelled it stops where it is: call :meth:`give_back` then.
        """
        try:
            opening = await self._open()
        except LeaseLost:
            raise
        except Exception:
            _log.exception("cycle not begun", instance_id=str(self.lease.instance_id))
            await self._write(self._refuse)
            return "failed"
        if opening is None:
            return "nothing"
        log = _log.bind(instance_id=str(self.lease.instance_id), cycle_id=str(self.id), trace_id=opening.trace_id)
        log.info("cycle started", events=len(opening.event_ids), replies=opening.replies)
        end, kind = await self._to_the_end(opening)
        self._count(end, opening)
        log.info("cycle ended", status=end, kind=kind)
        await self._look_again()
        return end

    async def _to_the_end(self, opening: Opening) -> tuple[Ending, str | None]:
        try:
            final = await self._converse(opening)
            await self._end("succeeded", lambda leased: self._succeed(leased, final))
        except LeaseLost:
            raise
        except _GivenBack as stop:
            kind = stop.kind
            await self._end("abandoned", lambda leased: cycles.abandon(leased, self.id, kind, None))
            return "abandoned", kind
        except Exception as error:
            if isinstance(error, _Failed):
                kind = error.kind
            else:
                kind = "unforeseen"
                _log.exception("cycle failed", cycle_id=str(self.id))
            await self._end("failed", lambda leased: self._fail(leased, kind))
            return "failed", kind
        return "succeeded", None

    async def give_back(self, kind: str) -> None:
        """Release the room, what is undecided waiting as before. For a cycle whose ``run`` was cancelled.

        Raises ``LeaseLost`` when there is nothing to give back any more.
        """

        async def give(leased: Leased) -> None:
            if await cycles.status(leased.conn, self.id) == "running":
                await cycles.abandon(leased, self.id, kind, None)
            await leases.release(leased, wake=True)

        await self._write(give)
        self._desk.metrics.cycles.labels("abandoned").inc()

    # -- beginning

    async def _open(self) -> Opening | None:
        nonce = os.urandom(8).hex()

        async def write(leased: Leased) -> Opening | None:
            if self._opening is not None and await cycles.status(leased.conn, self.id) is not None:
                return self._opening
            self._opening = await open_cycle(leased, self.id, nonce, self._settings)
            return self._opening

        try:
            opening = await self._write(write)
        except LeaseLost:
            # Releasing is the only thing of an opening that ends the lease; a first try of it may have committed.
            if self._opening is None:
                return None
            raise
        if opening is not None:
            self._messages = list(opening.messages)
            for received_at in opening.received:
                age = (opening.began_at - received_at).total_seconds()
                self._desk.metrics.event_age.labels("taken").observe(max(0.0, age))
        return opening

    # -- the supervisor loop

    async def _converse(self, opening: Opening) -> str:
        """Steps until the model ends; returns its final text. Raises ``_Stop``."""
        toolbox = Toolbox(self.id, max_deferrals=self._settings.max_deferrals, trace_id=opening.trace_id)
        reminded = False
        for _ in range(self._settings.max_steps):
            completion = await self._step(opening)
            if completion.tool_calls:
                for number, call in enumerate(completion.tool_calls):
                    await self._tool(toolbox, call, allowed=number < MAX_CALLS)
                crash_point("runner.after_tool")
                continue
            if reminded or not (unmarked := await self._write(lambda leased: events.unmarked(leased, self.id))):
                return completion.text
            reminded = True
            await self._record({"role": "user", "content": prompt.reminder(unmarked)})
        raise _Failed("step_limit")

    async def _step(self, opening: Opening) -> Completion:
        raw = prompt_tokens(self._messages)
        await self._may_go_on(self._estimator.estimate(raw))
        request = ChatRequest(
            tier="standard",
            messages=tuple(self._messages),
            tools=descriptions(),
            max_output_tokens=self._settings.max_output_tokens,
            model=opening.model,
            timeout=self._settings.call_seconds,
        )
        completion = storable(await self._ask(request))
        crash_point("runner.after_llm")
        self._estimator = self._estimator.learned(raw, completion.input_tokens)
        if not completion.input_tokens:  # a provider that reports nothing must not make the budget void
            estimated = self._estimator.estimate(raw)
            completion = replace(completion, input_tokens=estimated, output_tokens=text_tokens(completion.text))
        await self._record(completion.message(), completion)
        return completion

    async def _may_go_on(self, needed: int) -> None:
        """Raises ``_GivenBack`` for a room that was disabled or has no budget left."""

        async def look(leased: Leased) -> str | None:
            if not leased.runnable:
                return "disabled"
            return "budget_exhausted" if await spent(leased, needed) else None

        if (reason := await self._write(look)) is not None:
            raise _GivenBack(reason)

    async def _ask(self, request: ChatRequest) -> Completion:
        """One model call, repeated through trouble of the provider as long as that passes. Raises ``_Stop``."""
        provider, pause = self._desk.provider, 1.0
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise _Failed("deadline")
            scope = asyncio.timeout(left)
            try:
                async with scope:
                    return await provider.complete(request)
            except EventRejected as error:
                raise _Failed(error.kind) from error
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise _Failed("deadline") from error
            except DependencyUnavailable as error:
                if not await provider.wait_closed(self._settings.provider_wait_seconds):
                    raise _GivenBack("provider") from error
            # It answers others but not this one: asked again, more slowly each time, until the deadline.
            await asyncio.sleep(min(pause, max(0.0, self._deadline - time.monotonic())))
            pause = min(pause * 2, _LAST_CALL_PAUSE)

    async def _record(self, message: Message, completion: Completion | None = None) -> None:
        """Append a message to the transcript, with the step and tokens of the call it came from."""
        seq = len(self._messages)

        async def write(leased: Leased) -> None:
            if await cycles.written(leased, self.id, seq) is not None:
                return
            await cycles.append(leased, self.id, seq, message)
            if completion is not None:
                await self._account(leased, completion)

        await self._write(write)
        self._messages.append(message)

    async def _account(self, leased: Leased, completion: Completion) -> None:
        await cycles.count_step(leased, self.id, completion.input_tokens, completion.output_tokens)
        tokens = completion.input_tokens + completion.output_tokens
        await usage.add(leased.conn, leased.instance_id, "standard", tokens)
        if completion.fallback and not self._told_of_fallback:
            self._told_of_fallback = True
            await activity.append(
                leased.conn,
                leased.instance_id,
                "error",
                "the instance's own model was refused; the default one answered",
                severity="error",
                cycle_id=self.id,
            )

    async def _tool(self, toolbox: Toolbox, call: ToolCall, *, allowed: bool) -> None:
        """Carry out one call: its effect and its result message are one transaction."""
        seq = len(self._messages)
        outcome = "done"

        async def write(leased: Leased) -> Message:
            nonlocal outcome
            if (there := await cycles.written(leased, self.id, seq)) is not None:
                return there
            if allowed:
                outcome, result = await toolbox.call(leased, call)
            else:
                outcome, result = (
                    "error",
                    f'{{"error":"at most {MAX_CALLS} calls at once; this one was not carried out"}}',
                )
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": result}
            await cycles.append(leased, self.id, seq, message)
            return message

        self._messages.append(await self._write(write))
        name = call.name if call.name in TOOLS else "unknown"
        self._desk.metrics.tool_calls.labels(name, outcome).inc()
        if name == "send_message_to_human" and outcome == "done":
            self._sent = True
            self._desk.written(self.id)

    # -- ending

    async def _end(self, status: Ending, settle: Callable[[Leased], Awaitable[None]]) -> None:
        """Settle and release in one transaction. After a commit without an answer the row says whether it happened."""

        async def write(leased: Leased) -> None:
            await settle(leased)
            await leases.release(leased, last_cycle_id=self.id)
            crash_point("runner.before_finish_commit")

        try:
            await self._write(write)
        except LeaseLost:
            if await self._status() != status or status == "abandoned":
                raise
        crash_point("runner.after_finish_commit")
        self._desk.written(self.id)

    async def _succeed(self, leased: Leased, final: str) -> None:
        returned = await events.retry(leased, self.id, self._settings.event_backoff, _UNMARKED)
        read = await inbox.mark_read(leased, self.id)
        await events.cool(leased, self.id)
        text = None if self._sent else spoken(final)
        if text is not None:
            await outbox.add(leased, self.id, text, trace_id=self._opening.trace_id if self._opening else None)
        await cycles.end(leased, self.id, "succeeded")
        await leases.succeed(leased)
        undecided = returned.pending + len(returned.failed)
        taken = len(self._opening.event_ids) if self._opening else 0
        await activity.append(
            leased.conn,
            leased.instance_id,
            "cycle_finished",
            f"cycle finished: {taken - undecided} of {taken} event(s) decided, {read} human message(s) read",
            cycle_id=self.id,
            counts={"cycle_finished": 1, "events_decided": taken - undecided, "replies_read": read},
        )

    async def _fail(self, leased: Leased, kind: str) -> None:
        await events.retry(leased, self.id, self._settings.event_backoff, f"cycle failed: {kind}")
        await inbox.retry(leased, self.id, self._settings.max_attempts)
        await events.cool(leased, self.id)
        await cycles.end(leased, self.id, "failed", kind)
        await self._fail_room(leased, kind)

    async def _refuse(self, leased: Leased) -> None:
        """Something made it impossible to begin: no event can be blamed, so the room is."""
        await self._fail_room(leased, "not_begun")
        await leases.release(leased)

    async def _fail_room(self, leased: Leased, kind: str) -> None:
        standing = await leases.fail(leased, kind, self._settings.room_backoff)
        await activity.append(
            leased.conn,
            leased.instance_id,
            "cycle_failed",
            f"cycle failed: {kind} ({standing.fails} in a row)",
            severity="error",
            cycle_id=self.id,
        )
        if standing.parked:
            await activity.append(
                leased.conn,
                leased.instance_id,
                "room_parked",
                f"room parked after {standing.fails} failed cycles in a row: {kind}",
                severity="error",
                cycle_id=self.id,
            )

    async def _look_again(self) -> None:
        """What came in during the cycle wakes the room at once. The next tick does the same, so trouble is fine."""
        try:
            async with self._desk.database.transaction() as conn:
                await rooms.wake_if_work(conn, self.lease.instance_id)
        except DependencyUnavailable as error:
            _log.info("room not looked at again", reason=str(error), instance_id=str(self.lease.instance_id))

    def _count(self, end: End, opening: Opening) -> None:
        metrics = self._desk.metrics
        metrics.cycles.labels(end).inc()
        seconds = time.monotonic() - self._claimed_at
        metrics.seconds.observe(seconds)
        if end == "succeeded":
            for received_at in opening.received:
                age = (opening.began_at - received_at).total_seconds() + seconds
                metrics.event_age.labels("cycle_ended").observe(max(0.0, age))

    # -- writing

    async def _write(self, work: Callable[[Leased], Awaitable[T]]) -> T:
        """One lease-checked transaction, tried until PostgreSQL answers or the lease is lost.

        A try may have committed without an answer: ``work`` looks first for what it would write.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                async with lease_transaction(self._desk.database, self.lease) as leased:
                    return await work(leased)
            except DependencyUnavailable as error:
                _log.warning("write of a cycle waits", reason=str(error), cycle_id=str(self.id))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _status(self) -> str | None:
        while True:
            try:
                async with self._desk.database.transaction() as conn:
                    return await cycles.status(conn, self.id)
            except DependencyUnavailable:
                await asyncio.sleep(_LAST_PAUSE)
