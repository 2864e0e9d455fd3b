"""The port to a channel's far end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from room_common.contracts.channel_config import ChannelConfig
from room_outbound.domain.pacing import Pace


@dataclass(frozen=True, slots=True)
class Letter:
    """What a provider is asked to deliver: a message, or one part of it (``part`` counts from 0)."""

    id: UUID
    room: str
    target: str
    text: str = field(repr=False)
    created_at: datetime
    part: int = 0

    @property
    def key(self) -> str:
        """The idempotency key: the message's id, from the second part on with the part's number."""
        return f"{self.id}-{self.part}" if self.part else str(self.id)


class Provider(Protocol):
    """Delivers to one channel type."""

    @property
    def longest(self) -> int | None:
        """UTF-16 code units of one part; None: the text is never cut."""

    @property
    def pace(self) -> Pace | None:
        """How fast one account may be used; None: as fast as can be."""

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """Deliver, and return the provider's id of the message.

        Raises ``DependencyUnavailable`` when another try may succeed (no answer, 5xx, 429 with its Retry-After) and
        ``Refused`` when none will. The kinds ``connect`` and ``rate_limit`` say that nothing was accepted.
        """

    async def close(self) -> None:
        """Close the connections."""
