"""Outcomes and states in words: what they are called, how good they are, what they mean and what helps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from room_common.domain.deliveries import OUTCOMES, Outcome

_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

Tone = Literal["good", "live", "wait", "warn", "bad", "quiet"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an outcome means to an operator."""

    tone: Tone
    text: str


MEANINGS: Final[dict[Outcome, Meaning]] = {
    "matched": Meaning("good", "A definition matched: it became an event in the backlog."),
    "no_match": Meaning("quiet", "Every definition was asked and none matched."),
    "duplicate": Meaning("quiet", "The same delivery was decided before. It cost no call of the model."),
    "handshake": Meaning("quiet", "The provider asked whether this URL is ours. It is no event."),
    "room_disabled": Meaning("warn", "The room is off or its instance is paused. Switch the room on to take events."),
    "source_disabled": Meaning("warn", "The source is off. Switch it on to take its deliveries."),
    "no_definitions": Meaning("warn", "The source has no definition that is on, so there was nothing to ask."),
    "budget_exhausted": Meaning(
        "warn", "The instance has used its tokens of today. It goes on at midnight in its timezone."
    ),
    "backlog_full": Meaning("warn", "100 events of this instance were pending. New ones are taken below that."),
    "unknown_token": Meaning(
        "warn", "The URL was made here but belongs to nothing any more: deleted, or ended after a rotation."
    ),
    "bad_signature": Meaning(
        "bad", "The signature or key did not verify. Compare the secret here with the one at the provider."
    ),
    "config_unreadable": Meaning(
        "bad", "The source's secrets can't be decrypted, and so it takes nothing. Apply its room file again."
    ),
    "too_large": Meaning("bad", "The body has more than 65,536 bytes. Have the provider send less."),
    "undecodable": Meaning("bad", "The body could not be read; the reason names why."),
    "dead": Meaning("bad", "It failed for reasons of its own and went to the dead-letter topic."),
}
assert set(MEANINGS) == set(OUTCOMES)

_STATES: Final[dict[str, Tone]] = {
    "pending": "wait",
    "processing": "live",
    "completed": "good",
    "failed": "bad",
    "unread": "wait",
    "taken": "live",
    "read": "good",
    "ignored": "quiet",
    "running": "live",
    "succeeded": "good",
    "abandoned": "warn",
    "queued": "wait",
    "published": "wait",
    "sending": "live",
    "sent": "good",
    "unknown": "warn",
    "info": "quiet",
    "warning": "warn",
    "error": "bad",
}


def tone(state: str) -> Tone:
    """How good an outcome, a status or a severity is. One that is not known is quiet."""
    for outcome, meaning in MEANINGS.items():
        if outcome == state:
            return meaning.tone
    return _STATES.get(state, "quiet")


def short_ids(text: str) -> str:
    """Ids in a text, cut to the end that lists show of them."""
    return _ID.sub(lambda found: "…" + found[0][-8:], text)


def spaced(word: str) -> str:
    """``no_match`` as ``no match``."""
    return word.replace("_", " ")
