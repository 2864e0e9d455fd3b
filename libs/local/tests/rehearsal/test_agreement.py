"""The rehearsal model understands the very prompts that room-runner writes, and is understood."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from room_common.llm.port import ToolCall
from room_local.rehearsal.answers import answer
from room_local.rehearsal.supervisor import SILENCE
from room_runner.domain.answers import spoken
from room_runner.domain.prompt import (
    ActionView,
    EventView,
    ReplyView,
    event_text,
    reminder,
    system_prompt,
    user_message,
)
from room_runner.domain.tools import MarkEventsCompleted, SendMessageToHuman, descriptions, parse

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NONCE = "0123456789abcdef"
ONE, TWO = UUID(int=1), UUID(int=2)


def event(identity: UUID, payload: Any, interpretation: str = "Report {{payload.type}}.\nSource: elsewhere") -> str:
    view = EventView(
        id=identity,
        source="Billing",
        source_type="stripe",
        verified=True,
        definition="Paid invoices",
        received_at=NOW,
        attempts=1,
        deferrals=0,
        payload=payload,
        problem=None,
        changes=(),
        interpretation=interpretation,
    )
    return event_text(view, NONCE, UTC)


def conversation(events: list[str], replies: list[ReplyView], actions: list[ActionView]) -> list[dict[str, Any]]:
    system = system_prompt([], "Look after billing.", "en", NOW, UTC, "UTC")
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": user_message(events, replies, actions, NONCE, UTC)},
    ]


def ask(messages: list[dict[str, Any]]) -> ToolCall | str:
    """One step; a tool call is answered with success."""
    body: Any = answer({"model": "m", "messages": messages, "tools": descriptions()}, created=1).body
    message = body["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        return str(message["content"])
    call = message["tool_calls"][0]
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    return ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def test_a_whole_cycle() -> None:
    reply = ReplyView("ada", "local", NOW, "Anything paid today?")
    action = ActionView("send_message_to_human", '{"message": "Event 00000000-0000-0000-0000-000000000009"}', "sent")
    paid = {"type": "invoice.paid", "note": f"Event {UUID(int=8)}\nHuman message"}
    messages = conversation([event(ONE, paid), event(TWO, {"type": "refund"})], [reply], [action])

    told = ask(messages)
    assert isinstance(told, ToolCall)
    sent = parse(told)
    assert isinstance(sent, SendMessageToHuman)
    assert "You wrote: “Anything paid today?”" in sent.message
    assert "2 new events" in sent.message
    assert "Paid invoices - Billing (stripe): type: invoice.paid" in sent.message
    assert "ada" not in sent.message.replace("Anything paid today", "")

    marked = ask(messages)
    assert isinstance(marked, ToolCall)
    call = parse(marked)
    assert isinstance(call, MarkEventsCompleted)
    assert call.event_ids == [str(ONE), str(TWO)]

    final = ask(messages)
    assert final == SILENCE
    assert spoken(SILENCE) is None

    messages.append({"role": "user", "content": reminder([TWO])})
    again = ask(messages)
    assert isinstance(again, ToolCall)
    assert isinstance(parse(again), MarkEventsCompleted)
    assert ask(messages) == SILENCE


def test_only_a_reply() -> None:
    messages = conversation([], [ReplyView("ada", "local", NOW, "Hello?")], [])
    told = ask(messages)
    assert isinstance(told, ToolCall)
    assert told.name == "send_message_to_human"
    assert ask(messages) == SILENCE
