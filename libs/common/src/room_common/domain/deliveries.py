"""What deliveries are judged by, and how judging one can end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, get_args
from uuid import UUID

Outcome = Literal[
    "unknown_token",
    "source_disabled",
    "config_unreadable",
    "bad_signature",
    "too_large",
    "undecodable",
    "handshake",
    "duplicate",
    "room_disabled",
    "budget_exhausted",
    "backlog_full",
    "no_definitions",
    "no_match",
    "matched",
    "dead",
]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
"""Every end a delivery's item can have, in the order of the cascade (behaviour, section 4)."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An enabled event definition, as far as classification needs it."""

    id: UUID
    name: str
    matching_prompt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Source:
    """An event source with all that decides about its deliveries.

    ``config`` and ``token_encrypted`` are ciphertexts. ``valid_until`` is the token's. ``room_enabled`` is None when
    the instance has no room. ``fast_model`` is the instance's own model of tier fast. ``definitions`` are the enabled
    ones in the order they are asked in.
    """

    id: UUID
    instance_id: UUID
    name: str
    source_type: str
    enabled: bool
    deleted: bool
    config: bytes | None = field(repr=False)
    token_encrypted: bytes = field(repr=False)
    valid_until: datetime | None
    instance_active: bool
    instance_deleted: bool
    room_enabled: bool | None
    fast_model: str | None
    definitions: tuple[Definition, ...]
