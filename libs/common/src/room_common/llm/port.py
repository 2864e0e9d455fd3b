"""What Room asks of a language model, and how that can fail, free of any provider's client.

The error classes are the ones of the cascade (behaviour 5): the *provider* is at fault (``DependencyUnavailable``:
wait, spend no attempt), an instance's own model is (*override*: the adapter falls back and says so in
``Completion.fallback``), or *this event* is (``EventRejected``: dead, or a failed cycle). Anything else is unforeseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, get_args

from room_common.errors import DeadLetter, Refused

Tier = Literal["fast", "standard"]
TIERS: tuple[Tier, ...] = ("fast", "standard")

Message = Mapping[str, object]
"""A chat message or tool description in OpenAI's wire shape: what goes on the wire is what is in the transcript."""

CallKind = Literal["timeout", "server_error", "rate_limit", "malformed", "conflict", "unexpected_status"]
CALL_LOCAL: Final[tuple[CallKind, ...]] = get_args(CallKind)
"""Kinds of ``DependencyUnavailable`` that a single call can meet at a provider that answers all others."""

RejectionKind = (
    Literal["refused", "content_filter", "context_length", "truncated", "no_choices", "invalid_request"] | CallKind
)


class EventRejected(DeadLetter):
    """The provider works and this prompt does not: too long, refused, filtered, or no usable answer to it."""

    def __init__(self, kind: RejectionKind, status: int | None = None) -> None:
        super().__init__(kind, status)


class OverrideRejected(Refused):
    """The provider refused an instance's own model. Adapters catch it and use the tier's default model."""

    def __init__(self, status: int | None = None) -> None:
        super().__init__("override_rejected")
        self.status = status


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One model call. Prompts are left out of ``repr`` on purpose.

    ``model`` is the instance's override of the tier's default, ``timeout`` (seconds) shortens or lengthens the tier's
    own for one try. ``temperature`` None sends none; 0 is dropped for models that do not take it.
    """

    tier: Tier
    messages: Sequence[Message] = field(repr=False)
    tools: Sequence[Message] = field(default=(), repr=False)
    max_output_tokens: int | None = None
    temperature: float | None = 0.0
    model: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model wants called. ``arguments`` is the model's text: JSON if all is well, checked by the caller."""

    id: str
    name: str
    arguments: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer. Token counts are the provider's own, 0 where it reports none; cached ones are part of input."""

    text: str = field(repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""
    fallback: bool = False
    """The instance's own model was refused and the tier's default answered."""

    def message(self) -> dict[str, object]:
        """The assistant's message in wire shape, to append to the conversation."""
        message: dict[str, object] = {"role": "assistant", "content": self.text or None}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        elif not self.text:
            message["content"] = ""
        return message


class Llm(Protocol):
    """A language model."""

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer ``request``; bounded in time.

        Raises ``DependencyUnavailable("llm", ...)`` when the provider is at fault and ``EventRejected`` when the
        prompt is.
        """
        ...
