"""The built-in tools as a model sees them, and its calls as data: arguments are text from a model until checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from room_common.domain.jsonview import storable_text
from room_common.llm.port import Message, ToolCall

MAX_MINUTES: Final = 7 * 24 * 60
MAX_MESSAGE: Final = 20_000
_SHOWN_ERRORS: Final = 5

Text = Annotated[str, StringConstraints(strip_whitespace=True)]
ModelT = TypeVar("ModelT", bound=BaseModel)


class _Arguments(BaseModel):
    """Base: what a model adds without being asked is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class MarkEventsCompleted(_Arguments):
    """Mark events of this cycle as completed, once everything their instructions ask for is done."""

    event_ids: list[str] = Field(min_length=1, max_length=100, description="Ids of the events, as given to you.")
    notes: Annotated[Text, Field(max_length=2000)] | None = Field(
        None, description="What was done, in a sentence or two."
    )


class DeferEvent(_Arguments):
    """Put an event off: it is offered to a later cycle. For what can't be decided yet."""

    event_id: str = Field(description="Id of the event, as given to you.")
    minutes: int = Field(ge=1, le=MAX_MINUTES, description="From 1 minute to 7 days (10080).")
    reason: Annotated[Text, Field(min_length=1, max_length=500)] = Field(description="What it waits for.")


class SendMessageToHuman(_Arguments):
    """Send a message to the human of this room, on the room's own channel."""

    message: Annotated[Text, Field(min_length=1, max_length=MAX_MESSAGE)] = Field(description="The message's text.")


Call = MarkEventsCompleted | DeferEvent | SendMessageToHuman

TOOLS: Final[dict[str, type[MarkEventsCompleted] | type[DeferEvent] | type[SendMessageToHuman]]] = {
    "mark_events_completed": MarkEventsCompleted,
    "defer_event": DeferEvent,
    "send_message_to_human": SendMessageToHuman,
}


class BadCall(Exception):
    """A call that can't be carried out; the text tells the model why, and quotes nothing of it."""


def descriptions() -> list[Message]:
    """The tools in the wire shape of the chat completions API."""
    return [description(name, model.__doc__ or "", schema(model)) for name, model in TOOLS.items()]


def description(name: str, text: str, parameters: Mapping[str, Any]) -> Message:
    """One tool in the wire shape of the chat completions API."""
    return {"type": "function", "function": {"name": name, "description": text, "parameters": dict(parameters)}}


def parse(call: ToolCall, known: Sequence[str] = tuple(TOOLS)) -> Call:
    """The call's arguments, checked. Raises :class:`BadCall` for an unknown tool or malformed arguments; ``known`` are
    the names that a model which asks for an unknown one is told."""
    model = TOOLS.get(call.name)
    if model is None:
        raise BadCall(f"There is no such tool. The tools are: {', '.join(known)}.")
    return _storable(parsed(model, call.arguments))


def parsed(model: type[ModelT], text: str) -> ModelT:
    """A model's text as ``model``. Raises :class:`BadCall`."""
    try:
        return model.model_validate_json(text or "{}")
    except ValidationError as error:
        raise BadCall(_explain(error)) from None


def event_ids(texts: list[str]) -> tuple[list[UUID], int]:
    """The ids among ``texts``, each once, and how many are no ids at all."""
    found: dict[UUID, None] = {}
    bad = 0
    for text in texts:
        try:
            found[UUID(text.strip())] = None
        except ValueError:
            bad += 1
    return list(found), bad


def _storable(call: Call) -> Call:
    values = {name: storable_text(value) if isinstance(value, str) else value for name, value in call}
    return call.model_copy(update=values)


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:_SHOWN_ERRORS]:
        place = ".".join(str(part) for part in item["loc"]) or "arguments"
        lines.append(
            f"{storable_text(place)[:80]}: {item['msg'] if item['type'] != 'json_invalid' else 'not valid JSON'}"
        )
    return "The arguments can't be used. " + "; ".join(lines)


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a tool's arguments, without what only repeats names."""
    made = model.model_json_schema()
    made.pop("title", None)
    made.pop("description", None)
    for field in made.get("properties", {}).values():
        field.pop("title", None)
    return {**made, "additionalProperties": False}
