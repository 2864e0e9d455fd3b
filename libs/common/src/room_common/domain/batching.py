"""Whose top-level arrays are batches of events."""

from __future__ import annotations

from typing import Final

BATCHING_TYPES: Final = frozenset({"hubspot"})
"""Source types whose top-level arrays are split into items unless the source says otherwise."""


def splits(source_type: str, switch: bool | None) -> bool:
    """Whether the elements of a top-level array are items of their own; ``switch`` is the source's own setting."""
    return source_type.strip().lower() in BATCHING_TYPES if switch is None else switch
