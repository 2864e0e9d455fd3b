"""The life of a delivery: what the ledger, the backlog, the cycles and the outbox know of it, in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from room_admin.domain.checks import checks
from room_common.postgres import deliveries
from room_common.postgres.database import Connection

_OF_ITEM = (
    "item",
    "outcome",
    "reason",
    "definition",
    "verdicts",
    "changes",
    "id_conflict",
    "llm_calls",
    "tokens",
    "size",
    "decided_at",
)
_OF_DELIVERY = ("id", "received_at", "room", "source", "topic", "partition", "offset", "trace_id", "replay_of")


async def life(conn: Connection, delivery_id: UUID) -> dict[str, Any] | None:
    """Everything known of a delivery, None where that is nothing."""
    rows = await deliveries.items(conn, delivery_id)
    if not rows:
        return None
    first = rows[0]
    events = {row["item"]: row for row in await deliveries.events(conn, delivery_id)}
    replays = await deliveries.replays(conn, delivery_id)
    known: dict[UUID, dict[str, Any]] = {}
    items = []
    for row in rows:
        event = events.get(row["item"])
        items.append(
            {name: row[name] for name in _OF_ITEM}
            | {
                "checks": [asdict(check) for check in checks(row["outcome"], row["reason"])],
                "event": None if event is None else await _event(conn, event, known),
            }
        )
    return {name: first[name] for name in _OF_DELIVERY} | {"replays": list(replays), "items": items}


async def _event(conn: Connection, event: Mapping[str, Any], known: dict[UUID, dict[str, Any]]) -> dict[str, Any]:
    cycles = [await _cycle(conn, cycle, known) for cycle in await deliveries.cycles(conn, event["id"])]
    return {name: value for name, value in event.items() if name not in ("item", "instance_id")} | {"cycles": cycles}


async def _cycle(conn: Connection, cycle: Mapping[str, Any], known: dict[UUID, dict[str, Any]]) -> dict[str, Any]:
    if cycle["id"] not in known:
        known[cycle["id"]] = dict(cycle) | {
            "tool_calls": list(await deliveries.tool_calls(conn, cycle["id"])),
            "messages": list(await deliveries.messages(conn, cycle["id"])),
        }
    return known[cycle["id"]]
