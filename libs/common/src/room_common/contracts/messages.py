"""JSON messages between services: frozen, versioned, strict when made and lenient when read.

Producers build a model (unknown fields are refused); consumers call :func:`read`, which ignores fields it does not
know, so that a newer producer never stops an older consumer. Schemas and golden examples live under contracts/.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from room_common.errors import DeadLetter


class Message(BaseModel):
    """Base of every JSON message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(default=1, description="Version of this message's schema; changes are additive.")

    def encode(self) -> bytes:
        """The message as UTF-8 JSON."""
        return self.model_dump_json().encode()


TickReason = Literal["pending", "reply", "manual"]


class TickCommand(Message):
    """Wakes one room. Carries no state: a lost, late or duplicated tick is harmless."""

    instance_id: UUID = Field(description="The instance whose room has work.")
    seq: int = Field(ge=0, description="Number of the tick: floor(database time / interval); 0 for reply and manual.")
    reason: TickReason = Field(description="Why the room is woken.")
    issued_at: datetime = Field(description="Database time at which the tick was decided.")


class OutboundMessage(Message):
    """Wakes the delivery of one outbox row."""

    id: UUID = Field(description="Id of the row in outbound_messages; also the provider's idempotency key.")
    instance_id: UUID
    cycle_id: UUID | None = Field(description="The cycle that wrote it; null for a test message.")
    channel: str = Field(description="Channel type, for example local or slack.")
    target: str = Field(description="Whom it goes to, from configuration.")
    text: str
    created_at: datetime

    @property
    def record_key(self) -> bytes:
        """The record key: instance id and target, so that a target's records stay in order."""
        return f"{self.instance_id}{self.target}".encode()


MODELS: Final[dict[str, type[Message]]] = {"tick-command": TickCommand, "outbound-message": OutboundMessage}
"""Every JSON message by the name its schema has under contracts/."""

M = TypeVar("M", bound=Message)


def read(model: type[M], value: bytes | None) -> M:
    """Decode a message, ignoring fields this version does not know. Raises ``DeadLetter('bad_message')``."""
    if value is None:
        raise DeadLetter("bad_message")
    try:
        return model.model_validate_json(value, extra="ignore")
    except ValidationError:
        raise DeadLetter("bad_message") from None
