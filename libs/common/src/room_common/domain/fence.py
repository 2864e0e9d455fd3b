"""The fence around everything that no operator wrote.

A fenced block looks like this, with a random nonce of 16 hex digits that its sender can't know::

    <room-data kind="payload" nonce="0123456789abcdef">
    ...
    </room-data nonce="0123456789abcdef">

Tags of that shape inside the text are scrubbed, whatever their nonce, case, spacing or width, so that nothing inside
can look like the end of the block to a reader less exact than a parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TAG = "room-data"
SCRUBBED = "[tag removed]"

_IGNORABLE = (
    r"[\s\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]*+"
)


def _either_width(character: str) -> str:
    if character == "-":
        return "[-_\u2010-\u2015\u2212\ufe58\ufe63\uff0d]?"
    return f"[{character}{chr(ord(character) + 0xFEE0)}{chr(ord(character.upper()) + 0xFEE0)}]"


# No word boundary after the name: `<room-database>` goes too, which costs nothing and leaves no near miss.
_FENCE_SHAPED = re.compile(
    r"[<\uff1c\ufe64](?:" + _IGNORABLE + r"[/\\\uff0f])*+" + _IGNORABLE
    + _IGNORABLE.join(_either_width(character) for character in TAG)
    + r"(?:[^<>\uff1c\uff1e]{0,200}[>\uff1e\ufe65])?",
    re.IGNORECASE,
)  # fmt: skip

_FENCED = re.compile(
    rf'<{TAG} kind="(?P<kind>[a-z_]+)" nonce="(?P<nonce>[0-9a-f]*)">\n?(?P<text>.*?)\n?</{TAG} nonce="(?P=nonce)">',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Fenced:
    """One block found in a prompt."""

    kind: str
    nonce: str
    text: str


def scrub(text: str) -> str:
    """The text without anything shaped like a fence's tag."""
    return _FENCE_SHAPED.sub(SCRUBBED, text)


def fence(text: str, nonce: str, kind: str) -> str:
    """The text as one block of its own lines; ``kind`` is one of our own words (``payload``, ``headers``)."""
    return f"{_opening(nonce, kind)}\n{scrub(text)}\n{_closing(nonce)}"


def fence_inline(text: str, nonce: str, kind: str) -> str:
    """The text fenced within a line, for a value inside an operator's sentence."""
    return f"{_opening(nonce, kind)}{scrub(text)}{_closing(nonce)}"


def fenced_blocks(prompt: str) -> Iterator[Fenced]:
    """The blocks of a prompt, in order: for a reader of whole prompts, such as the rehearsal model."""
    for found in _FENCED.finditer(prompt):
        yield Fenced(found["kind"], found["nonce"], found["text"])


def _opening(nonce: str, kind: str) -> str:
    return f'<{TAG} kind="{kind}" nonce="{nonce}">'


def _closing(nonce: str) -> str:
    return f'</{TAG} nonce="{nonce}">'
