"""The supervisor loop of a cycle (behaviour 9.4 to 9.6).

It does what the transcript says is next, so that a cycle which is resumed in another process runs the same code as one
that was never interrupted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from opentelemetry.trace import Span

from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.llm.port import ChatRequest, Completion, EventRejected, Message, ToolCall
from room_common.postgres import activity, cycles, events, resuming, usage
from room_common.postgres.leases import Leased
from room_common.telemetry.tracing import span
from room_runner.desk import Desk
from room_runner.domain import prompt
from room_runner.domain.answers import MAX_CALLS, storable
from room_runner.domain.tokens import Estimator, prompt_tokens, text_tokens
from room_runner.domain.transcript import final_text, open_calls, reminded
from room_runner.opening import Opening, spent
from room_runner.outside import OutsideTool
from room_runner.stops import Abandoned, Failed, Suspended
from room_runner.toolbox import Toolbox
from room_runner.writing import What, Writer

_LAST_CALL_PAUSE: Final = 30.0


class Conversation:
    """The conversation of one cycle under one lease. ``deadline`` is in monotonic seconds.

    ``sent`` tells whether the cycle has queued a message, ``waited`` how many seconds it waited for the model provider,
    which are not its own.
    """

    def __init__(
        self, desk: Desk, writer: Writer, opening: Opening, outside: Mapping[str, OutsideTool], deadline: float
    ) -> None:
        self.sent = opening.sent
        self.waited = 0.0
        self._desk = desk
        self._settings = desk.settings
        self._writer = writer
        self._opening = opening
        self._deadline = deadline
        self._messages: list[Mapping[str, Any]] = list(opening.messages)
        self._steps = opening.steps
        self._estimator = Estimator()
        self._told_of_fallback = False
        self._appending = asyncio.Lock()
        self._toolbox = Toolbox(
            opening.cycle_id,
            outside,
            verified=opening.verified,
            max_deferrals=desk.settings.max_deferrals,
            traceparent=opening.traceparent,
        )
        self._tools = self._toolbox.descriptions()

    async def run(self) -> str:
        """Go on until the model ends; returns its final text. Raises ``Stop`` and ``LeaseLost``."""
        while True:
            if calls := open_calls(self._messages):
                await self._carry_out(calls)
                crash_point("runner.after_tool")
            elif (final := final_text(self._messages)) is not None:
                unmarked = await self._writer.write(
                    "look", lambda leased: events.unmarked(leased, self._opening.cycle_id)
                )
                if not unmarked or reminded(self._messages):
                    return final
                await self._append("reminder", {"role": "user", "content": prompt.reminder(unmarked)})
            else:
                await self._step()

    # -- model calls

    async def _step(self) -> None:
        self._boundary()
        if self._steps >= self._settings.max_steps:
            raise Failed("step_limit")
        raw = prompt_tokens([*self._messages, *self._tools])
        needed = self._estimator.estimate(raw)
        await self._may_go_on(needed)
        if needed > self._settings.context_tokens:
            raise Failed("context_length")
        request = ChatRequest(
            tier="standard",
            messages=tuple(self._messages),
            tools=self._tools,
            max_output_tokens=self._settings.max_output_tokens,
            model=self._opening.model,
            timeout=self._settings.call_seconds,
        )
        completion = storable(await self._ask(request))
        crash_point("runner.after_llm")
        self._estimator = self._estimator.learned(raw, completion.input_tokens)
        if not completion.input_tokens:  # a provider that reports nothing must not make the budget void
            estimated = self._estimator.estimate(raw)
            completion = replace(completion, input_tokens=estimated, output_tokens=text_tokens(completion.text))
        await self._append("step", completion.message(), completion)
        self._steps += 1

    def _boundary(self) -> None:
        """Where a process that is to end lets go of the cycle. Raises ``Suspended``."""
        if self._desk.draining.is_set():
            raise Suspended("released")

    async def _may_go_on(self, needed: int) -> None:
        """Raises ``Abandoned`` for a room that was disabled or has no budget left."""

        async def look(leased: Leased) -> str | None:
            if not leased.runnable:
                return "disabled"
            return "budget_exhausted" if await spent(leased, needed) else None

        if (reason := await self._writer.write("look", look)) is not None:
            raise Abandoned(reason)

    async def _ask(self, request: ChatRequest) -> Completion:
        """One model call, repeated through trouble of the provider as long as that passes. Raises ``Stop``."""
        provider, pause = self._desk.provider, 1.0
        while True:
            left = self._deadline + self.waited - time.monotonic()
            if left <= 0:
                raise Failed("deadline")
            scope = asyncio.timeout(left)
            try:
                async with scope:
                    return await provider.complete(request)
            except EventRejected as error:
                raise Failed(error.kind) from error
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise Failed("deadline") from error
            except DependencyUnavailable as error:
                began = time.monotonic()
                closed = await provider.wait_closed(self._settings.provider_wait_seconds, unless=self._desk.draining)
                self.waited += time.monotonic() - began
                self._boundary()
                if not closed:
                    raise Suspended("provider") from error
            self._boundary()
            # It answers others but not this one: asked again, more slowly each time, until the deadline.
            await asyncio.sleep(min(pause, max(0.0, self._deadline + self.waited - time.monotonic())))
            pause = min(pause * 2, _LAST_CALL_PAUSE)

    async def _account(self, leased: Leased, completion: Completion) -> None:
        await cycles.count_step(leased, self._opening.cycle_id, completion.input_tokens, completion.output_tokens)
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
                cycle_id=self._opening.cycle_id,
            )

    # -- tools

    async def _carry_out(self, calls: list[tuple[int, ToolCall]]) -> None:
        """Answer every call: ours in order, neighbouring ones of outside tools at the same time."""
        together: list[tuple[OutsideTool, ToolCall]] = []
        for number, call in calls:
            begun = call.id in self._opening.calls_begun and self._steps == self._opening.steps
            tool = None if begun or number >= MAX_CALLS else self._toolbox.outside(call.name)
            if tool is not None:
                together.append((tool, call))
                continue
            await self._outside(together)
            together = []
            if begun:
                await self._answer(call, "interrupted", self._toolbox.interrupted())
            elif number >= MAX_CALLS:
                await self._answer(call, "error", self._toolbox.too_many(MAX_CALLS))
            else:
                await self._inside(call)
        await self._outside(together)

    async def _inside(self, call: ToolCall) -> None:
        """One of our own tools: its effect and its result message are one transaction."""
        with self._tool_span(call, "function") as done:
            outcome = await self._carried_out(call)
            done.set_attribute("room.tool.outcome", outcome)
        self._count(call, outcome)
        if call.name == "send_message_to_human" and outcome == "done":
            self.sent = True
            self._desk.written(self._opening.cycle_id)

    async def _carried_out(self, call: ToolCall) -> str:
        seq = len(self._messages)
        outcome = "done"

        async def write(leased: Leased) -> Mapping[str, Any]:
            nonlocal outcome
            if (there := await cycles.written(leased, self._opening.cycle_id, seq)) is not None:
                return there
            outcome, result = await self._toolbox.call(leased, call)
            message = _result(call, result)
            await cycles.append(leased, self._opening.cycle_id, seq, message)
            return message

        self._messages.append(await self._writer.write("tool", write))
        return outcome

    def _tool_span(self, call: ToolCall, kind: str) -> AbstractContextManager[Span]:
        """A tool's call. A name that the model made up is no name, and arguments and results are never shown."""
        name = "unknown" if self._toolbox.label(call.name) == "unknown" else call.name
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.type": kind}
        return span(f"execute_tool {name}", attributes=attributes)

    async def _outside(self, calls: list[tuple[OutsideTool, ToolCall]]) -> None:
        """Tools that act elsewhere: put on record under the lease first, so that nobody repeats one unknowingly."""
        if not calls:
            return
        ids = [call.id for _, call in calls]
        await self._writer.write("call", lambda leased: resuming.begin_calls(leased, self._opening.cycle_id, ids))
        tasks = [asyncio.create_task(self._outside_call(tool, call), name=f"tool-{tool.name}") for tool, call in calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _outside_call(self, tool: OutsideTool, call: ToolCall) -> None:
        with self._tool_span(call, "extension") as done:
            outcome, result = await self._toolbox.call_outside(tool, call)
            done.set_attribute("room.tool.outcome", outcome)
        crash_point("runner.after_outside_call")
        await self._answer(call, outcome, result)

    async def _answer(self, call: ToolCall, outcome: str, result: str) -> None:
        async def log(leased: Leased) -> None:
            if outcome == "done":
                await self._toolbox.log(leased, call.name)

        await self._append("tool", _result(call, result), after=log)
        self._count(call, outcome)

    def _count(self, call: ToolCall, outcome: str) -> None:
        self._desk.metrics.tool_calls.labels(self._toolbox.label(call.name), outcome).inc()

    # -- the transcript

    async def _append(
        self,
        what: What,
        message: Message,
        completion: Completion | None = None,
        after: Callable[[Leased], Awaitable[None]] | None = None,
    ) -> None:
        """Append a message to the transcript, with the step and tokens of the call it came from."""
        async with self._appending:
            seq = len(self._messages)

            async def write(leased: Leased) -> None:
                if await cycles.written(leased, self._opening.cycle_id, seq) is not None:
                    return
                await cycles.append(leased, self._opening.cycle_id, seq, message)
                if completion is not None:
                    await self._account(leased, completion)
                if after is not None:
                    await after(leased)

            await self._writer.write(what, write)
            self._messages.append(message)


def _result(call: ToolCall, text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call.id, "content": text}
