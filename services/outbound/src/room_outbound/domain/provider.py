"""The port to a channel's far end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Letter:
    """What a provider is asked to deliver. ``id`` is the idempotency key where the provider knows one."""

    id: UUID
    room: str
    target: str
    text: str
    created_at: datetime


class Provider(Protocol):
    """Delivers to one channel type."""

    async def send(self, letter: Letter) -> str:
        """Deliver, and return the provider's id of the message.

        Raises ``DependencyUnavailable`` when another try may succeed (no answer, 5xx, 429 with its Retry-After) and
        ``Refused`` when none will.
        """
