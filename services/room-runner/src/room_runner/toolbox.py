"""The tools of one cycle. Ours run inside the transaction that also writes their result message; the others act outside
and have promised nothing, so that what they say is fenced and cut."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal
from uuid import UUID

import orjson
import structlog

from room_common.domain.fence import fence
from room_common.domain.jsonview import storable_text
from room_common.llm.port import Message, ToolCall
from room_common.postgres import activity, events, outbox
from room_common.postgres.leases import Leased
from room_common.telemetry.tracing import traceparent_now
from room_runner.domain.prompt import cut
from room_runner.domain.tools import (
    TOOLS,
    BadCall,
    Call,
    DeferEvent,
    MarkEventsCompleted,
    SendMessageToHuman,
    description,
    descriptions,
    event_ids,
    parse,
)
from room_runner.outside import MAX_RESULT_BYTES, OutsideTool, ToolFailed

Outcome = Literal["done", "nothing", "error"]

INTERRUPTED: Final = (
    "the worker that made this call was lost before the result was known: it may or may not have happened. "
    "Find out before you do it again."
)
UNVERIFIED: Final = "this tool needs verified events, and an event of this cycle is not verified"
_log = structlog.get_logger(__name__)


class Toolbox:
    """``verified``: whether every event of the cycle is; without it, tools that ask for that are not there."""

    def __init__(
        self,
        cycle_id: UUID,
        outside: Mapping[str, OutsideTool],
        *,
        verified: bool,
        max_deferrals: int,
        traceparent: str | None,
    ) -> None:
        self._cycle_id = cycle_id
        self._outside = {name: tool for name, tool in outside.items() if name not in TOOLS}
        self._verified = verified
        self._max_deferrals = max_deferrals
        self._traceparent = traceparent

    def descriptions(self) -> tuple[Message, ...]:
        """What the model is told there is."""
        theirs = (tool for tool in self._outside.values() if self._offered(tool))
        return (*descriptions(), *(description(tool.name, tool.description, tool.parameters) for tool in theirs))

    def label(self, name: str) -> str:
        """A tool's name as one of few: what operators and models name is no label."""
        if name in TOOLS:
            return name
        return "outside" if name in self._outside else "unknown"

    def outside(self, name: str) -> OutsideTool | None:
        """The outside tool of that name, if it may be called."""
        tool = self._outside.get(name)
        return tool if tool is not None and self._offered(tool) else None

    def interrupted(self) -> str:
        """The result of a call that was begun by a worker that is gone."""
        return _json(error=INTERRUPTED)

    def too_many(self, limit: int) -> str:
        """The result of a call beyond what one answer may ask for."""
        return _json(error=f"at most {limit} calls at once; this one was not carried out")

    async def call_outside(self, tool: OutsideTool, call: ToolCall) -> tuple[Outcome, str]:
        """Call a tool that acts elsewhere; returns what became of it and the result as text for the model."""
        outcome: Outcome = "done"
        try:
            text = await tool.call(call.arguments)
        except ToolFailed as error:
            outcome, text = "error", f"error: {error}"
            _log.info("tool failed", tool=tool.name, kind=error.kind, cycle_id=str(self._cycle_id))
        except Exception as error:
            outcome, text = "error", "error: the tool failed unexpectedly"
            _log.warning("tool broke", tool=tool.name, error=type(error).__name__, cycle_id=str(self._cycle_id))
        return outcome, fence(cut(storable_text(text), MAX_RESULT_BYTES), os.urandom(8).hex(), "tool_result")

    async def log(self, leased: Leased, name: str) -> None:
        """One row of the activity log for a call that did something."""
        await activity.append(
            leased.conn, leased.instance_id, "tool_called", f"tool {name} called", cycle_id=self._cycle_id
        )

    async def call(self, leased: Leased, call: ToolCall) -> tuple[Outcome, str]:
        """Do what the model asks of one of our tools; returns what became of it and the result for the model."""
        if call.name in self._outside:
            return "error", _json(error=UNVERIFIED)
        try:
            arguments = parse(call, [*TOOLS, *(name for name, tool in self._outside.items() if self._offered(tool))])
        except BadCall as error:
            return "error", _json(error=str(error))
        outcome, result = await self._carry_out(leased, arguments)
        if outcome == "done":
            await self.log(leased, call.name)
        return outcome, result

    def _offered(self, tool: OutsideTool) -> bool:
        return self._verified or not tool.verified_only

    async def _carry_out(self, leased: Leased, arguments: Call) -> tuple[Outcome, str]:
        match arguments:
            case MarkEventsCompleted():
                return await self._mark(leased, arguments)
            case DeferEvent():
                return await self._defer(leased, arguments)
            case SendMessageToHuman():
                return await self._send(leased, arguments)

    async def _mark(self, leased: Leased, arguments: MarkEventsCompleted) -> tuple[Outcome, str]:
        ids, bad = event_ids(arguments.event_ids)
        changed = await events.complete(leased, self._cycle_id, ids, arguments.notes)
        ignored = len(ids) - len(changed) + bad
        result: dict[str, object] = {"completed": len(changed)}
        if ignored:
            result["ignored"] = ignored
            result["why"] = "not an open event of this cycle"
        return ("done" if changed else "nothing"), _json(**result)

    async def _defer(self, leased: Leased, arguments: DeferEvent) -> tuple[Outcome, str]:
        ids, _ = event_ids([arguments.event_id])
        if not ids:
            return "error", _json(error="event_id is not the id of an event")
        deferral = await events.defer(
            leased, self._cycle_id, ids[0], arguments.minutes, arguments.reason, self._max_deferrals
        )
        if deferral == "deferred":
            return "done", _json(deferred=True, minutes=arguments.minutes)
        if deferral == "too_often":
            return "error", _json(error=f"this event was deferred {self._max_deferrals} times; decide now")
        return "error", _json(error="not an open event of this cycle")

    async def _send(self, leased: Leased, arguments: SendMessageToHuman) -> tuple[Outcome, str]:
        message_id = await outbox.add(
            leased, self._cycle_id, arguments.message, traceparent=traceparent_now(self._traceparent)
        )
        if message_id is None:
            return "nothing", _json(error="this room has no channel; the message stays in the transcript only")
        return "done", _json(queued=True, message_id=str(message_id))


def _json(**values: object) -> str:
    return orjson.dumps(values).decode()
