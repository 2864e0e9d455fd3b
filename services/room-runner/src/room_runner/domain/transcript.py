"""Where a conversation stands, read from its transcript: a cycle that is resumed knows nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from room_common.llm.port import ToolCall

_OPENING = 2
"""The system and the user message that every cycle begins with."""


def open_calls(messages: Sequence[Mapping[str, Any]]) -> list[tuple[int, ToolCall]]:
    """Calls of the last answer that have no result yet, each with its place among that answer's calls."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
        elif message["role"] == "assistant":
            return [
                (number, ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]))
                for number, call in enumerate(message.get("tool_calls") or ())
                if call["id"] not in answered
            ]
        else:
            return []
    return []


def final_text(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The text with which the model stopped, None while it is its turn or a tool's."""
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return None
    return last["content"] or ""


def reminded(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model was asked once more about unmarked events."""
    return any(message["role"] == "user" for message in messages[_OPENING:])
