"""Which events a cycle takes: oldest first, within a number and a size (behaviour 6 and 9.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

LONELY_ATTEMPTS: Final = 2
"""From so many failed attempts on an event is taken alone, so that it spoils no other."""


class Candidate(Protocol):
    """What choosing looks at."""

    @property
    def id(self) -> UUID:
        """The event's id."""

    @property
    def attempts(self) -> int:
        """Attempts that failed."""

    @property
    def verified(self) -> bool:
        """The trust label."""


C = TypeVar("C", bound=Candidate)


def choose(heads: Sequence[C], *, replies: bool, limit: int, by_trust: bool = False) -> list[C]:
    """The events to take of ``heads`` (offerable, oldest first).

    ``by_trust``: verified and other events are not mixed, so that one anybody could have sent takes no tool away from
    the others.

    An event that failed before is taken alone once it is the oldest, and never together with people's messages
    (``replies``): those do not wait for it either.
    """
    if heads and heads[0].attempts >= LONELY_ATTEMPTS and not replies:
        return [heads[0]]
    young = [head for head in heads if head.attempts < LONELY_ATTEMPTS]
    if by_trust:
        young = [head for head in young if head.verified == young[0].verified]
    return young[:limit]


def fitting(sizes: Sequence[int], budget: int) -> int:
    """How many of the first parts of a prompt fit into ``budget``; the first always does."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > budget and count > 0:
            return count
    return len(sizes)
