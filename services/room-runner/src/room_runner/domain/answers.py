"""What a model's answer means, once it is made storable."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from room_common.domain.jsonview import storable_text
from room_common.llm.port import Completion, ToolCall

SILENCE: Final = "NO_MESSAGE"
"""The final text of a model that has nothing to tell its human."""

MAX_CALLS: Final = 32
"""Tool calls of one answer that are carried out; further ones are told so."""

_THINKING = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
_ORNAMENT = "`*_\"'.!()[] \t\r\n"


def storable(completion: Completion) -> Completion:
    """The answer as PostgreSQL can keep it and a provider takes it back: no NUL, tool calls with distinct ids."""
    seen: set[str] = set()
    calls = []
    for number, call in enumerate(completion.tool_calls):
        call_id = storable_text(call.id) or f"call_{number}"
        if call_id in seen:
            call_id = f"{call_id}_{number}"
        seen.add(call_id)
        calls.append(ToolCall(call_id, storable_text(call.name), storable_text(call.arguments)))
    return replace(completion, text=storable_text(completion.text), tool_calls=tuple(calls))


def spoken(text: str) -> str | None:
    """What of the final text is for the human: None for silence, thoughts left out."""
    said = text
    while (shorter := _THINKING.sub("", said)) != said:
        said = shorter
    said = said.strip()
    return None if not said or said.strip(_ORNAMENT).upper() == SILENCE else said
