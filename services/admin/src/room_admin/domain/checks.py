"""Which checks of the cascade a delivery's item passed, told from where it ended (behaviour, the cascade)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from room_common.domain.deliveries import Outcome


@dataclass(frozen=True, slots=True)
class Check:
    """One check in the order they are made. ``reason``: why it did not pass, where more than its name is known."""

    check: str
    passed: bool
    reason: str | None = None


_STOPS: Final[Mapping[Outcome, str]] = {
    "unknown_token": "token",
    "source_disabled": "source enabled",
    "config_unreadable": "config readable",
    "too_large": "size",
    "bad_signature": "signature",
    "undecodable": "decodes",
    "handshake": "not a handshake",
    "duplicate": "not a duplicate",
    "room_disabled": "room enabled",
    "budget_exhausted": "budget left",
    "backlog_full": "room in the backlog",
    "no_definitions": "has definitions",
    "no_match": "a definition matches",
}
_ORDER: Final = tuple(_STOPS.values())
_DECIDING: Final = "decided once"

_AT_THE_END: Final = frozenset({"decided_elsewhere", "in_backlog", "at_commit"})
"""Reasons of stops that the deciding transaction makes, after the model was asked."""


def checks(outcome: Outcome, reason: str | None) -> tuple[Check, ...]:
    """The checks up to the one where the item ended, all of them for a match; none for a dead one, which is known by
    its reason alone. One that is too large only once it is decompressed ends where it is decoded."""
    if outcome == "dead":
        return ()
    if outcome == "matched":
        return tuple(Check(name, True) for name in (*_ORDER, _DECIDING))
    if reason in _AT_THE_END:
        return (*(Check(name, True) for name in _ORDER), Check(_DECIDING, False, f"{outcome}: {reason}"))
    stop = _STOPS[outcome]
    if outcome == "too_large" and reason != "body":
        stop = "decodes"
    passed = _ORDER[: _ORDER.index(stop)]
    return (*(Check(name, True) for name in passed), Check(stop, False, reason))
