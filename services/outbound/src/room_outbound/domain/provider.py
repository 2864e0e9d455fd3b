"""The port to a channel's far end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Letter:
    """What a provider is asked to deliver: a message, or one part of it (``part`` counts from 0)."""

    id: UUID
    room: str
    target: str
    text: str
    created_at: datetime
    part: int = 0

    @property
    def key(self) -> str:
        """The idempotency key: the message's id, from the second part on with the part's number."""
        return f"{self.id}-{self.part}" if self.part else str(self.id)


class Provider(Protocol):
    """Delivers to one channel type. ``longest``: UTF-16 code units of one part; None: the text is never cut."""

    @property
    def longest(self) -> int | None:
        """See the class."""

    async def send(self, letter: Letter) -> str:
        """Deliver, and return the provider's id of the message.

        Raises ``DependencyUnavailable`` when another try may succeed (no answer, 5xx, 429 with its Retry-After) and
        ``Refused`` when none will. The kinds ``connect`` and ``rate_limit`` say that nothing was accepted.
        """
