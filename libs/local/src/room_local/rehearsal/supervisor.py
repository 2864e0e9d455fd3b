"""The rehearsal model's script for a room's cycle: tell the human, mark the events, be silent. Pure.

It keeps no state: what it did already is in the conversation it is given, so the same conversation always gets the
same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from room_local.rehearsal.facts import facts
from room_local.rehearsal.prompts import Section, ids_named, sections

SILENCE = "NO_MESSAGE"
"""A final text that sends nothing; the room's system prompt defines it."""
SEND, MARK = "send_message_to_human", "mark_events_completed"
SIGNATURE = "(Written by the rehearsal model from simple rules; no language model is at work.)"
LONGEST_MESSAGE = 3_500
LONGEST_QUOTE = 300
LONGEST_INSTRUCTIONS = 400

RULES = (
    f"With tools, it plays a room's supervisor: first it calls {SEND} with a summary of the events, each with what its "
    f"definition asks for, and an answer to what people wrote, then {MARK} with all event ids, then it ends with the "
    f"silence marker {SILENCE}.",
    "Asked again about events that are not marked, it marks those once more.",
)


@dataclass(frozen=True, slots=True)
class Step:
    """What to answer: a text, or a call of one tool (with the text as a remark beside it)."""

    kind: str
    text: str
    tool: str | None = None
    arguments: dict[str, object] = field(default_factory=dict)


def next_step(messages: Sequence[Mapping[str, object]], tools: frozenset[str]) -> Step:
    """The step that follows ``messages`` (chat messages in wire shape) when the tools named ``tools`` are offered."""
    told = [section for text in _texts(messages, "user") for section in sections(text)]
    events = tuple(dict.fromkeys(section.id for section in told if section.id))
    calls = list(_calls(messages))
    if SEND in tools and told and not any(name == SEND for name, _ in calls):
        message = summary(told)
        return Step("tell", "Rehearsal model: telling the human.", SEND, {"message": message})
    if MARK in tools:
        marked = {str(identity).lower() for name, given in calls if name == MARK for identity in _ids(given)}
        unmarked = [event for event in events if event not in marked] or _asked_again(messages, events)
        if unmarked:
            notes = "Summarised for the human by the rehearsal model."
            return Step("mark", "Rehearsal model: marking events.", MARK, {"event_ids": unmarked, "notes": notes})
    if SEND not in tools and told:
        return Step("summarise", summary(told))
    return Step("silence", SILENCE)


def summary(told: Sequence[Section]) -> str:
    """A readable message about events and human messages."""
    events = [section for section in told if section.id]
    humans = [section for section in told if not section.id]
    parts = [_reply(section) for section in humans]
    if events:
        parts.append(f"{len(events)} new {'event' if len(events) == 1 else 'events'}:")
        parts += [_about(section) for section in events]
    if humans:
        parts.append("I told you and marked the events as done." if events else "There is nothing else to do now.")
    text = "\n".join(parts)
    return f"{_cut(text, LONGEST_MESSAGE)}\n{SIGNATURE}"


def _about(section: Section) -> str:
    source = section.fields.get("source", "")
    definition = section.fields.get("definition", "")
    title = " - ".join(part for part in (definition, source) if part) or f"event {section.id}"
    payload = next((block.text for block in section.blocks if block.kind == "payload"), None)
    if payload is None and section.blocks:
        payload = section.blocks[0].text
    details = "; ".join(facts(payload)) if payload else ""
    line = f"• {title}: {details}" if details else f"• {title}"
    return f"{line}\n  Asked for: {_cut(section.instructions, LONGEST_INSTRUCTIONS)}" if section.instructions else line


def _reply(section: Section) -> str:
    written = " ".join(" ".join(block.text for block in section.blocks if block.kind != "sender").split())
    return f"You wrote: “{_cut(written, LONGEST_QUOTE)}”. I have read it."


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _asked_again(messages: Sequence[Mapping[str, object]], events: Sequence[str]) -> list[str]:
    """The events named by a question that came after our own answers and has not been answered yet."""
    if not messages or messages[-1].get("role") != "user" or not any(m.get("role") == "assistant" for m in messages):
        return []
    return list(ids_named(_text(messages[-1]), events))


def _calls(messages: Sequence[Mapping[str, object]]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                found.append((str(function.get("name")), _parsed(function.get("arguments"))))
    return found


def _parsed(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None


def _ids(arguments: object) -> list[object]:
    ids = arguments.get("event_ids") if isinstance(arguments, Mapping) else None
    return ids if isinstance(ids, list) else []


def _texts(messages: Sequence[Mapping[str, object]], role: str) -> list[str]:
    return [_text(message) for message in messages if message.get("role") == role]


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""
