"""What must change so that an instance matches its room document. Pure: the plan is shown as it is, or carried out.

Secrets are compared by value and never shown: a change of them reads ``1 secret`` -> ``2 secrets (changed)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from room_common.contracts.channel_config import CHANNEL_SECRETS, ChannelConfig
from room_common.contracts.room_document import DefinitionDocument, RoomDocument, SourceDocument
from room_common.contracts.source_config import Verify
from room_common.contracts.tool_config import ToolConfig

Kind = Literal["room", "channel", "source", "definition", "tool"]
Action = Literal["create", "update", "delete", "unchanged"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field; ``before`` is None for something new."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One thing. A definition's ``name`` is ``source / definition``."""

    kind: Kind
    name: str
    action: Action
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentDefinition:
    """A definition as it is stored."""

    id: UUID
    priority: int
    match: str
    interpret: str
    cooldown_seconds: int
    enabled: bool


@dataclass(frozen=True, slots=True)
class CurrentSource:
    """A source as it is stored. ``secrets`` is None when its config can't be decrypted, the switches then too."""

    id: UUID
    type: str
    enabled: bool
    secrets: tuple[str, ...] | None = field(repr=False)
    definitions: Mapping[str, CurrentDefinition]
    verify: Verify | None = None
    split: bool | None = None
    dedup_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class CurrentChannel:
    """The channel a room talks on, as it is stored. ``config`` is None when it can't be decrypted."""

    type: str
    target: str
    delivery: str
    config: ChannelConfig | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class CurrentTool:
    """A tool as it is stored. ``config`` is None for a function, and for a server whose config can't be decrypted."""

    id: UUID
    type: str
    enabled: bool
    config: ToolConfig | None
    allowed: tuple[str, ...]
    guarded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CurrentRoom:
    """An instance with all that belongs to it, as it is stored."""

    instance_id: UUID
    name: str
    mandate: str
    timezone: str
    enabled: bool
    channel: CurrentChannel | None
    sources: Mapping[str, CurrentSource]
    tools: Mapping[str, CurrentTool] = field(default_factory=dict)


def difference(
    document: RoomDocument,
    secrets: Mapping[str, Sequence[str]],
    current: CurrentRoom | None,
    channel_config: ChannelConfig | None = None,
    tool_configs: Mapping[str, ToolConfig] | None = None,
) -> tuple[Change, ...]:
    """Every thing of the document and of the stored room, with what happens to it. ``secrets`` is by source name;
    ``channel_config`` and ``tool_configs`` are what the document makes of its channel and tools, with their secrets.
    """
    return (
        _compared("room", document.slug, current, document, ("name", "mandate", "timezone", "enabled")),
        *_channel(document, current, channel_config),
        *_sources(document, secrets, current.sources if current is not None else {}),
        *_tools(document, tool_configs or {}, current.tools if current is not None else {}),
    )


def definition_name(source: str, definition: str) -> str:
    """How a definition is called outside of its source."""
    return f"{source} / {definition}"


def changed(changes: Sequence[Change]) -> bool:
    """Whether anything is to be done."""
    return any(change.action != "unchanged" for change in changes)


def _channel(document: RoomDocument, current: CurrentRoom | None, config: ChannelConfig | None) -> Iterator[Change]:
    before = current.channel if current is not None else None
    if document.channel is not None:
        # A channel of another type is another channel: its URL is new.
        same = before if before is not None and before.type == document.channel.type else None
        compared = _compared("channel", document.channel.type, same, document.channel, ("target", "delivery"))
        notes = () if same is None else _credentials(same.config, config)
        action: Action = "update" if notes else compared.action
        yield Change("channel", compared.name, action, (*compared.fields, *notes))
        if before is not None and same is None:
            yield Change("channel", before.type, "delete")
    elif before is not None:
        yield Change("channel", before.type, "delete")


def _credentials(before: ChannelConfig | None, after: ChannelConfig | None) -> tuple[FieldChange, ...]:
    """What differs in a channel's config. Secrets are compared by value and never shown."""
    if after is None or before == after:
        return ()
    if before is None or before.type != after.type:
        return (FieldChange("secrets", "unreadable", "new"),)
    names = CHANNEL_SECRETS[after.type]
    open_fields = tuple(
        FieldChange(name, old, new)
        for name in ("sender", "allow")
        if (old := getattr(before, name, None)) != (new := getattr(after, name, None))
    )
    if all(getattr(before, name) == getattr(after, name) for name in names):
        return open_fields
    return (*open_fields, FieldChange("secrets", _count(names), f"{_count(names)} (changed)"))


def _sources(
    document: RoomDocument, secrets: Mapping[str, Sequence[str]], current: Mapping[str, CurrentSource]
) -> Iterator[Change]:
    wanted = {source.name for source in document.sources}
    for source in document.sources:
        before = current.get(source.name)
        yield _source(source, tuple(secrets.get(source.name, ())), before)
        yield from _definitions(source, before.definitions if before is not None else {})
    for name, before in current.items():
        if name not in wanted:
            yield Change("source", name, "delete")
            yield from (Change("definition", definition_name(name, gone), "delete") for gone in before.definitions)


def _source(source: SourceDocument, secrets: tuple[str, ...], before: CurrentSource | None) -> Change:
    compared = _compared("source", source.name, before, source, ("type", "enabled"))
    notes = [*_switches(source, before)]
    had = before.secrets if before is not None else ()
    if had != secrets:
        note = None if before is None else ("unreadable" if had is None else _count(had))
        notes.append(FieldChange("secrets", note, _count(secrets) + ("" if before is None else " (changed)")))
    if not notes:
        return compared
    action: Action = "create" if before is None else "update"
    return Change("source", source.name, action, (*compared.fields, *notes))


def _switches(source: SourceDocument, before: CurrentSource | None) -> Iterator[FieldChange]:
    """What is rarely set, and shown only where it is or was."""
    for name in ("verify", "split", "dedup_seconds"):
        old, new = getattr(before, name, None), getattr(source, name)
        if old != new:
            yield FieldChange(name, _shown(old), _shown(new))


def _shown(value: Verify | bool | int | None) -> dict[str, Any] | bool | int | None:
    return value.model_dump(exclude_none=True) if isinstance(value, Verify) else value


def _definitions(source: SourceDocument, current: Mapping[str, CurrentDefinition]) -> Iterator[Change]:
    wanted = {definition.name for definition in source.definitions}
    for definition in source.definitions:
        yield _compared(
            "definition",
            definition_name(source.name, definition.name),
            current.get(definition.name),
            definition,
            ("priority", "match", "interpret", "cooldown_seconds", "enabled"),
        )
    gone = (name for name in current if name not in wanted)
    yield from (Change("definition", definition_name(source.name, name), "delete") for name in gone)


def _tools(
    document: RoomDocument, configs: Mapping[str, ToolConfig], current: Mapping[str, CurrentTool]
) -> Iterator[Change]:
    for tool in document.tools:
        before = current.get(tool.name)
        compared = _compared("tool", tool.name, before, tool, ("type", "enabled", "allowed", "guarded"))
        notes = [*_server(configs.get(tool.name), before)]
        action: Action = "update" if notes and before is not None else compared.action
        yield Change("tool", tool.name, action, (*compared.fields, *notes))
    wanted = {tool.name for tool in document.tools}
    yield from (Change("tool", name, "delete") for name in current if name not in wanted)


def _server(after: ToolConfig | None, before: CurrentTool | None) -> Iterator[FieldChange]:
    if after is None:
        return
    if before is not None and before.config is None:
        yield FieldChange("config", "unreadable" if before.type == "mcp" else None, "new")
        return
    old = before.config if before is not None else None
    for name in ("url", "header", "prefix"):
        was, is_ = getattr(old, name, None), getattr(after, name)
        if was != is_ and (old is not None or name == "url"):
            yield FieldChange(name, was, is_)
    was = None if old is None else old.secret
    if was != after.secret:
        yield FieldChange(
            "secret", None if was is None else "1 secret", None if after.secret is None else "1 secret (changed)"
        )


def prompts_differ(before: CurrentDefinition, after: DefinitionDocument) -> bool:
    """Whether a definition's meaning changed, which makes a new version of it."""
    return (before.match, before.interpret) != (after.match, after.interpret)


def _compared(kind: Kind, name: str, before: object | None, after: object, fields: Sequence[str]) -> Change:
    if before is None:
        return Change(
            kind, name, "create", tuple(FieldChange(field_, None, getattr(after, field_)) for field_ in fields)
        )
    different = tuple(
        FieldChange(field_, getattr(before, field_), getattr(after, field_))
        for field_ in fields
        if getattr(before, field_) != getattr(after, field_)
    )
    return Change(kind, name, "update" if different else "unchanged", different)


def _count(secrets: Sequence[str]) -> str:
    return "no secret" if not secrets else "1 secret" if len(secrets) == 1 else f"{len(secrets)} secrets"
