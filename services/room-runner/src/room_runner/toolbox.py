"""Carries out the built-in tools. Each runs inside the transaction that also writes its result message."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import orjson

from room_common.llm.port import ToolCall
from room_common.postgres import activity, events, outbox
from room_common.postgres.leases import Leased
from room_runner.domain.tools import (
    BadCall,
    Call,
    DeferEvent,
    MarkEventsCompleted,
    SendMessageToHuman,
    event_ids,
    parse,
)

Outcome = Literal["done", "nothing", "error"]


class Toolbox:
    """The tools of one cycle. ``completed`` and ``sent`` tell what they did by now."""

    def __init__(self, cycle_id: UUID, *, max_deferrals: int, trace_id: str | None) -> None:
        self._cycle_id = cycle_id
        self._max_deferrals = max_deferrals
        self._trace_id = trace_id

    async def call(self, leased: Leased, call: ToolCall) -> tuple[Outcome, str]:
        """Do what the model asks; returns what became of it and the result as text for the model."""
        try:
            arguments = parse(call)
        except BadCall as error:
            return "error", _json(error=str(error))
        outcome, result = await self._carry_out(leased, arguments)
        if outcome == "done":
            await activity.append(
                leased.conn, leased.instance_id, "tool_called", f"tool {call.name} called", cycle_id=self._cycle_id
            )
        return outcome, result

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
        message_id = await outbox.add(leased, self._cycle_id, arguments.message, trace_id=self._trace_id)
        if message_id is None:
            return "nothing", _json(error="this room has no channel; the message stays in the transcript only")
        return "done", _json(queued=True, message_id=str(message_id))


def _json(**values: object) -> str:
    return orjson.dumps(values).decode()
