"""The life of one delivery."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from room_admin.access import DatabaseOf
from room_admin.deliveries import NEEDS_FORCE
from room_admin.domain.checks import checks
from room_admin.domain.life import life
from room_admin.panel import pages
from room_admin.panel.sessions import Operating, Visiting, spends
from room_admin.problems import Problem
from room_admin.routes import deliveries as api
from room_admin.routes.deliveries import DeliveriesOf, ItemNumber
from room_admin.routes.parameters import read_page
from room_common.domain.decoding import Undecodable, decode_payload
from room_common.domain.jsonview import Json
from room_common.postgres import access, panel_views
from room_common.postgres import deliveries as stored_deliveries

router = APIRouter()

_ITEMS = 100
_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload beside its bytes. ``reason`` says why there is no view."""

    raw: str = field(repr=False)
    size: int
    content_type: str | None
    headers: Mapping[str, str] = field(repr=False)
    view: Json = field(default=None, repr=False)
    changes: tuple[str, ...] = ()
    reason: str | None = None


@router.get("/deliveries/{delivery_id}")
async def show_delivery(request: Request, database: DatabaseOf, visit: Visiting, delivery_id: UUID) -> Response:
    """Every item of a delivery: its steps from HTTP to the sent message, and for operators its payload."""
    async with database.transaction() as conn:

        async def rows(name: Any, limit: int, **filters: object) -> list[dict[str, Any]]:
            return (await read_page(conn, visit.caller, name, filters, cursor=None, limit=limit)).items

        items = sorted(await rows("deliveries", _ITEMS, id=delivery_id), key=lambda row: row["item"])
        if not items:
            raise Problem(404, "There is no such delivery, or it has not been decided yet. The ledger keeps 7 days.")
        events = await rows("backlog", _ITEMS, delivery=delivery_id)
        ids = list({event["cycle_id"] for event in events if event["cycle_id"] is not None})
        cycles = await rows("cycles", _ITEMS, ids=ids) if ids else []
        messages = await rows("messages", _MESSAGES, cycles=ids) if ids else []
        stored = await panel_views.payloads(conn, delivery_id) if visit.operator and events else []
        if stored:
            await access.audit_reading(conn, visit.caller.name, "show_payload", subject=str(delivery_id))
        again = await stored_deliveries.replays(conn, delivery_id)
    payloads = {row["item"]: read_payload(row) for row in stored}
    lives = [
        (
            item,
            checks(item["outcome"], item["reason"]),
            life(item, events, cycles, messages),
            payloads.get(item["item"]),
        )
        for item in items
    ]
    first = {item["item"]: _first(item) for item in items}
    return pages.page(
        request,
        "delivery.html",
        visit,
        delivery=items[0],
        lives=lives,
        replays=again,
        duplicate_of=first,
        needs_force=NEEDS_FORCE.get(items[0]["outcome"]),
    )


@router.post("/deliveries/{delivery_id}/payload", dependencies=[spends("read")])
async def read_back(
    request: Request,
    database: DatabaseOf,
    reading: DeliveriesOf,
    visit: Operating,
    delivery_id: UUID,
    item: ItemNumber = 0,
) -> Response:
    """A payload that only Kafka has. The API's function reads and audits it."""
    answer = await api.show_delivered(reading, database, visit.caller, delivery_id, item)
    body = base64.b64decode(answer["raw"])
    payload = Payload(
        _as_text(body),
        len(body),
        answer["content_type"],
        answer["headers"],
        answer["decoded"],
        tuple(answer["changes"]),
        None if answer["reason"] is None else str(answer["reason"]),
    )
    return pages.page(request, "payload.html", visit, payload=payload)


def _first(item: Mapping[str, Any]) -> UUID | None:
    """The delivery that a duplicate repeats, as the matcher's reason names it: ``of <id>/<item>``."""
    if item["outcome"] != "duplicate" or not item["reason"]:
        return None
    try:
        return UUID(item["reason"].removeprefix("of ").partition("/")[0])
    except ValueError:
        return None


def read_payload(row: Mapping[str, Any]) -> Payload:
    """A stored payload as it is shown."""
    body = bytes(row["raw_body"])
    headers: Mapping[str, str] = row["headers"]
    decoded = decode_payload(body, row["content_type"], headers, split=False)
    known = {"size": len(body), "content_type": row["content_type"], "headers": headers}
    if isinstance(decoded, Undecodable):
        return Payload(_as_text(body), reason=str(decoded.reason), **known)
    item = decoded.items[0]
    return Payload(_as_text(body), view=item.view, changes=item.changes, **known)


def _as_text(body: bytes) -> str:
    """Bytes as text. What is not UTF-8 keeps its bytes visible as ``\\xNN``."""
    return body.decode("utf-8", "backslashreplace")
