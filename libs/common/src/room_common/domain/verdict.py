"""What a model's answer to "does this payload match?" means."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from room_common.domain.jsonview import storable_text

EXCERPT_LENGTH = 80

_LABELS = frozenset({"answer", "response", "verdict", "result", "risposta"})
_YES_ALONE = frozenset({"si", "sì", "y"})
_NO = frozenset({"no", "n", "none", "nope", "negative", "false"})
_THOUGHT_OPENS, _THOUGHT_CLOSES = "<think>", "</think>"


class Answer(StrEnum):
    """How an answer was understood; ``unclear`` counts as no, with a warning."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``excerpt`` is the answer's first 80 characters, storable: for the ledger, never for a log."""

    answer: Answer
    excerpt: str = field(repr=False)

    @property
    def matches(self) -> bool:
        """Whether the definition matches."""
        return self.answer is Answer.YES

    @property
    def warning(self) -> bool:
        """Whether the answer was neither a yes nor a no, which is worth a warning that names the definition."""
        return self.answer is Answer.UNCLEAR


def verdict(answer: str | None) -> Verdict:
    """Read a model's answer; None is an empty one. Total: whatever can't be understood is ``unclear``."""
    text = answer or ""
    return Verdict(_understand(text), storable_text(text[:EXCERPT_LENGTH]))


def _understand(text: str) -> Answer:
    plain = _from_first_letter(_without_thoughts(unicodedata.normalize("NFC", text.strip()).lower()))
    word = _leading_letters(plain)
    if word in _LABELS and not plain[len(word) : len(word) + 1].isalnum():
        plain = _from_first_letter(plain[len(word) :])
        word = _leading_letters(plain)
    if word == "yes":
        return Answer.YES
    if word in _YES_ALONE:
        alone = not any(character.isalnum() for character in plain[len(word) :])
        return Answer.YES if alone else Answer.UNCLEAR
    return Answer.NO if word in _NO else Answer.UNCLEAR


def _without_thoughts(text: str) -> str:
    at = 0
    while text.startswith(_THOUGHT_OPENS, at):
        closes = text.find(_THOUGHT_CLOSES, at)
        if closes < 0:
            return ""
        at = closes + len(_THOUGHT_CLOSES)
        while at < len(text) and text[at].isspace():
            at += 1
    return text[at:]


def _from_first_letter(text: str) -> str:
    return text[next((at for at, character in enumerate(text) if character.isalpha()), len(text)) :]


def _leading_letters(text: str) -> str:
    return "".join(takewhile(str.isalpha, text))
