"""The tools of a room document as rows, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from room_admin.domain.difference import CurrentTool
from room_common.contracts.room_document import RoomDocument
from room_common.contracts.tool_config import CONFIG_COLUMN, CONFIG_TABLE, ToolConfig, read_tool_config
from room_common.crypto import Keyring, UnknownKey
from room_common.errors import Refused
from room_common.identity import new_id
from room_common.postgres import tools
from room_common.postgres.database import Connection


def tool_configs_of(document: RoomDocument, secrets: Mapping[str, str]) -> dict[str, ToolConfig]:
    """The configs of a document's servers, by name; ``secrets`` are the values of those that refer to one."""
    return {
        tool.name: ToolConfig(url=tool.url, header=tool.header, prefix=tool.prefix, secret=secrets.get(tool.name))
        for tool in document.tools
        if tool.url is not None
    }


async def read_tools(conn: Connection, keyring: Keyring, instance_id: UUID) -> dict[str, CurrentTool]:
    """What is stored, by name."""
    return {
        row["name"]: CurrentTool(
            row["id"],
            row["kind"],
            row["enabled"],
            _config(keyring, row),
            tuple(sorted(row["allowed"])),
            tuple(sorted(row["verified_only"])),
        )
        for row in await tools.configured(conn, instance_id)
    }


async def write_tools(
    conn: Connection,
    keyring: Keyring,
    instance_id: UUID,
    document: RoomDocument,
    configs: Mapping[str, ToolConfig],
    current: Mapping[str, CurrentTool],
    touched: frozenset[str],
) -> None:
    """Make the rows match. A server at another URL is another server: nothing of it is confirmed."""
    for tool in document.tools:
        if tool.name not in touched:
            continue
        before = current.get(tool.name)
        tool_id = before.id if before is not None else new_id()
        config = configs.get(tool.name)
        sealed = None
        if config is not None:
            sealed = keyring.encrypt(config.encode(), table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(tool_id))
        url_before = before.config.url if before is not None and before.config is not None else None
        await tools.upsert(
            conn,
            tool_id,
            instance_id,
            name=tool.name,
            kind=tool.type,
            enabled=tool.enabled,
            config=sealed,
            allowed=tool.allowed,
            verified_only=tool.guarded,
            forget=config is None or config.url != url_before,
        )
    wanted = {tool.name for tool in document.tools}
    for name, gone in current.items():
        if name not in wanted:
            await tools.delete(conn, gone.id)


def _config(keyring: Keyring, row: Mapping[str, Any]) -> ToolConfig | None:
    if row["config"] is None:
        return None
    try:
        return read_tool_config(
            keyring.decrypt(bytes(row["config"]), table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(row["id"]))
        )
    except (Refused, UnknownKey):  # the document holds all of it, so that applying it heals this
        return None
