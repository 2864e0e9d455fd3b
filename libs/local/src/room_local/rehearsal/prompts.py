"""How the rehearsal model finds its way in a prompt. Pure.

Headings count only outside the fences: what a sender writes into a payload can't pose as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from room_common.domain.fence import TAG, Fenced, fenced_blocks

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_IDS = re.compile(_UUID)
_SECTION = re.compile(
    rf"^[#*\- \t]*+(?:Event[ \t]+[`*\"]*(?P<id>{_UUID})|(?P<human>Human message)\b)", re.IGNORECASE | re.MULTILINE
)
_CRITERION = re.compile(r"^[#* \t]*criterion[:* \t]*$", re.IGNORECASE | re.MULTILINE)
_INSTRUCTIONS = re.compile(r"^Instructions:[ \t]*$", re.MULTILINE)
_CHAPTER = re.compile(r"^# ", re.MULTILINE)
_NONE_GIVEN = "None were given."
_JSON_SPACE = re.compile(r"\\[nrtbf]")
_FIELD = re.compile(
    r"^[ \t]*+(?:[-*][ \t]*+)?+\**+(?P<name>[A-Za-z][A-Za-z ]{0,30}?)\**+[ \t]*+:[ \t]*+(?P<value>\S[^\n]*+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Section:
    """What a prompt says of one event (``id`` set) or of one human message (``id`` None)."""

    id: str | None
    fields: dict[str, str]
    """``Name: value`` lines outside the fences, names in lower case."""
    blocks: tuple[Fenced, ...]
    instructions: str = ""
    """The operator's interpretation with its values filled in, on one line."""


@dataclass(frozen=True, slots=True)
class _Placed:
    block: Fenced
    start: int
    end: int


def criterion(prompt: str) -> str:
    """The operator's criterion: what follows the heading "Criterion:" after the last fence."""
    placed = list(_placed(prompt))
    tail = prompt[placed[-1].end :] if placed else prompt
    heading = _CRITERION.search(tail)
    return (tail[heading.end() :] if heading else tail).strip()


def data(prompt: str) -> str:
    """Everything fenced, as one text; what JSON escapes inside its strings is space and quotes again."""
    text = "\n".join(block.text for block in fenced_blocks(prompt))
    return _JSON_SPACE.sub(" ", text).replace('\\"', '"')


def sections(prompt: str) -> tuple[Section, ...]:
    """The events and human messages of a cycle's user message, in order. One event is listed once."""
    placed = list(_placed(prompt))
    bare = _without(prompt, placed)
    heads = list(_SECTION.finditer(bare))
    found: list[Section] = []
    seen: set[str] = set()
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(bare)
        inside = tuple(one.block for one in placed if head.start() <= one.start < end)
        fields: dict[str, str] = {}
        for line in _FIELD.finditer(bare, head.end(), end):  # the first counts: instructions come after the facts
            fields.setdefault(line["name"].strip().lower(), line["value"].strip())
        identity = head["id"].lower() if head["id"] else None
        if identity in seen or (identity is None and not inside):
            continue
        if identity:
            seen.add(identity)
        asked = _instructions(prompt, bare, placed, head.end(), end) if identity else ""
        found.append(Section(identity, fields, inside, asked))
    return tuple(found)


def _instructions(prompt: str, bare: str, placed: Sequence[_Placed], start: int, end: int) -> str:
    heading = _INSTRUCTIONS.search(bare, start, end)
    if heading is None:
        return ""
    at, end = heading.end(), next((mark.start() for mark in _CHAPTER.finditer(bare, heading.end(), end)), end)
    parts: list[str] = []
    for one in placed:
        if at <= one.start < end:
            parts += [prompt[at : one.start], one.block.text]
            at = one.end
    text = " ".join("".join([*parts, prompt[at:end]]).split())
    return "" if text == _NONE_GIVEN else text


def ids_named(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The ids of ``known`` that ``text`` names outside the fences."""
    bare = _without(text, list(_placed(text)))
    named = {match.lower() for match in _IDS.findall(bare)}
    return tuple(identity for identity in known if identity in named)


def _without(prompt: str, placed: Sequence[_Placed]) -> str:
    """The prompt with empty lines where the fences are: positions stay, and the line patterns pass them quickly."""
    parts: list[str] = []
    at = 0
    for one in placed:
        parts += [prompt[at : one.start], "\n" * (one.end - one.start)]
        at = one.end
    return "".join([*parts, prompt[at:]])


def _placed(prompt: str) -> Iterator[_Placed]:
    at = 0
    for block in fenced_blocks(prompt):
        closing = f'</{TAG} nonce="{block.nonce}">'
        start = prompt.index(f'<{TAG} kind="{block.kind}" nonce="{block.nonce}">', at)
        at = prompt.index(closing, start) + len(closing)
        yield _Placed(block, start, at)
