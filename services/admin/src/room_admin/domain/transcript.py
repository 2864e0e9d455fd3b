"""A cycle's transcript as turns. Total over whatever the messages hold: a provider's shapes are outside text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from room_common.domain.jsonview import json_text


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asked for."""

    id: str
    name: str
    arguments: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. ``answers`` names the tool whose result it is."""

    seq: int
    role: str
    at: datetime
    text: str = field(repr=False)
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None


def turns(rows: Iterable[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """The messages in their order; results of tools know which tool they are of."""
    names: dict[str, str] = {}
    result = []
    for row in rows:
        content = row["content"] if isinstance(row["content"], dict) else {"content": row["content"]}
        calls = tuple(_calls(content.get("tool_calls")))
        names |= {call.id: call.name for call in calls}
        answers = names.get(str(content.get("tool_call_id")), "a tool") if row["role"] == "tool" else None
        text = _text(content.get("content"))
        result.append(
            Turn(row["seq"], row["role"], row["created_at"], _pretty(text) if answers else text, calls, answers)
        )
    return tuple(result)


def _calls(value: object) -> Iterable[ToolCall]:
    for call in value if isinstance(value, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield ToolCall(str(call.get("id")), str(function.get("name")), _pretty(_text(function.get("arguments"))))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # parts of a message
        parts = (part.get("text") if isinstance(part, dict) else part for part in value)
        return "\n".join(part for part in parts if isinstance(part, str))
    return str(value)


def _pretty(text: str) -> str:
    """JSON objects and arrays are laid out; everything else stays as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json_text(orjson.loads(text), pretty=True)
    except (ValueError, RecursionError):
        return text
