"""The room document of what is stored: applying it changes nothing. Pure.

Secrets stay where they are: the document refers to them as ``stored``.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from room_admin.domain.difference import CurrentChannel, CurrentRoom, CurrentSource, CurrentTool
from room_common.contracts.channel_config import CHANNEL_SECRETS
from room_common.contracts.room_document import RoomDocument
from room_common.errors import Refused


def document_of(slug: str, current: CurrentRoom) -> RoomDocument:
    """The document of a room. Raises ``Refused``: a config can't be decrypted, or fits no document."""
    values: dict[str, Any] = {
        "version": 1,
        "name": current.name,
        "slug": slug,
        "mandate": current.mandate,
        "timezone": current.timezone,
        "enabled": current.enabled,
        "channel": None if current.channel is None else _channel(current.channel),
        "sources": [_source(name, source) for name, source in sorted(current.sources.items())],
        "tools": [_tool(name, tool) for name, tool in sorted(current.tools.items())],
    }
    try:
        return RoomDocument.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, found["loc"]))
        raise Refused("no_document", f"what is stored fits no room file: {place}: {found['msg']}") from None


def _channel(channel: CurrentChannel) -> dict[str, Any]:
    config = channel.config
    if config is None:
        raise _unreadable(f"channel {channel.type}")
    return {
        "type": channel.type,
        "target": channel.target,
        "delivery": channel.delivery,
        "sender": getattr(config, "sender", None),
        "allow": config.allow,
        "secrets": {name: {"stored": 1} for name in CHANNEL_SECRETS[config.type]},
    }


def _source(name: str, source: CurrentSource) -> dict[str, Any]:
    if source.secrets is None:
        raise _unreadable(f"source {name}")
    return {
        "name": name,
        "type": source.type,
        "enabled": source.enabled,
        "secrets": [{"stored": number} for number in range(1, len(source.secrets) + 1)],
        "verify": None if source.verify is None else source.verify.model_dump(exclude_none=True),
        "split": source.split,
        "dedup_seconds": source.dedup_seconds,
        "definitions": [
            {
                "name": definition_name,
                "priority": definition.priority,
                "match": definition.match,
                "interpret": definition.interpret,
                "cooldown_seconds": definition.cooldown_seconds,
                "enabled": definition.enabled,
            }
            for definition_name, definition in source.definitions.items()
        ],
    }


def _tool(name: str, tool: CurrentTool) -> dict[str, Any]:
    everything = bool(tool.guarded) and tool.guarded == tool.allowed
    found: dict[str, Any] = {
        "name": name,
        "type": tool.type,
        "enabled": tool.enabled,
        "verified_only": everything or list(tool.guarded) or False,
    }
    if tool.type == "python":
        return found
    if tool.config is None:
        raise _unreadable(f"tool {name}")
    config = tool.config
    return found | {
        "url": config.url,
        "allow": tool.allowed,
        "secret": None if config.secret is None else {"stored": 1},
        "header": config.header,
        "prefix": config.prefix,
    }


def _unreadable(what: str) -> Refused:
    return Refused("config_unreadable", f"the config of {what} can't be decrypted: put its key back, or apply its file")
