"""What is stored encrypted: one value for each key that sealed any, to try whether our keys open it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from room_common.contracts import channel_config, source_config, tool_config
from room_common.postgres.database import Connection

_PLACES: Final = (
    (source_config.CONFIG_TABLE, source_config.CONFIG_COLUMN, "id::text", "deleted_at is null"),
    (
        source_config.TOKEN_TABLE,
        source_config.TOKEN_COLUMN,
        "encode(token_sha256, 'hex')",
        "valid_until is null or valid_until > now()",
    ),
    (channel_config.CONFIG_TABLE, channel_config.CONFIG_COLUMN, "id::text", "enabled"),
    (tool_config.CONFIG_TABLE, tool_config.CONFIG_COLUMN, "id::text", "enabled"),
)


async def samples(conn: Connection) -> Sequence[dict[str, Any]]:
    """Rows of ``table``, ``column``, ``row_id``, ``sealed`` and ``number``: how many values that key sealed there.

    The id of the key stands at the beginning of a sealed value, behind its length (:mod:`room_common.crypto`).
    """
    found: list[dict[str, Any]] = []
    for table, column, row_id, living in _PLACES:
        cursor = await conn.execute(
            f"""
            select distinct on (key) {row_id} as row_id, sealed, count(*) over (partition by key) as number
            from (select *, {column} as sealed, case when octet_length({column}) > 2
                         then substring({column} from 3 for get_byte({column}, 1)) end as key
                  from {table} where {column} is not null and ({living})) as rows
            order by key
            """.encode()
        )
        found += [{"table": table, "column": column, **row} for row in await cursor.fetchall()]
    return found
