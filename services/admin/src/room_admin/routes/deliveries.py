"""What came in: the ledger, payloads read back from Kafka, lives, and sending a delivery again."""

from __future__ import annotations

import base64
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.deliveries import Deliveries
from room_admin.delivery_life import life
from room_admin.problems import Problem
from room_admin.routes.parameters import DeliveriesQuery, Page, list_page, read_page
from room_admin.spending import spends
from room_common.domain.decoding import Decoded, Undecodable
from room_common.postgres import access

router = APIRouter(tags=["deliveries"])

_UNKNOWN = "there is no such delivery, or it has not been decided yet"


def deliveries_of(request: Request) -> Deliveries:
    """What reads deliveries back, in this process."""
    found: Deliveries = request.app.state.deliveries
    return found


DeliveriesOf = Annotated[Deliveries, Depends(deliveries_of)]
ItemNumber = Annotated[int, Query(ge=0, le=99, description="Which item of a delivery that was split.")]


class ReplayRequest(BaseModel):
    """How to send a delivery again."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    force: bool = Field(
        False, description="Also when its signature was wrong or its URL unknown; it goes on as not verified."
    )
    item: int | None = Field(None, ge=0, le=99, description="Only this item of a delivery that was split.")


class ReplayAnswer(BaseModel):
    """The new copy: its id, and where it is."""

    id: UUID
    replay_of: UUID
    topic: str
    partition: int
    offset: int


@router.get("/deliveries")
async def list_deliveries(database: DatabaseOf, caller: Viewer, query: Annotated[DeliveriesQuery, Query()]) -> Page:
    """The ledger: every item of every delivery and its outcome."""
    return await list_page(database, caller, "deliveries", query)


@router.get("/deliveries/{delivery_id}")
async def show_delivery(database: DatabaseOf, caller: Viewer, delivery_id: UUID) -> Page:
    """Every item of one delivery."""
    async with database.transaction() as conn:
        page = await read_page(conn, caller, "deliveries", {"id": delivery_id}, cursor=None, limit=100)
    if not page.items:
        raise Problem(404, _UNKNOWN)
    return page


@router.get("/deliveries/{delivery_id}/life", dependencies=[spends("read")])
async def show_life(database: DatabaseOf, caller: Operator, delivery_id: UUID) -> dict[str, Any]:
    """The life of a delivery: checks, verdicts, events, cycles with their tool calls, messages, replays. Audited."""
    async with database.transaction() as conn:
        found = await life(conn, delivery_id)
        if found is None:
            raise Problem(404, _UNKNOWN)
        await access.audit_reading(conn, caller.name, "show_life", subject=str(delivery_id))
    return found


@router.get("/deliveries/{delivery_id}/payload", dependencies=[spends("read")])
async def show_delivered(
    deliveries: DeliveriesOf, database: DatabaseOf, caller: Operator, delivery_id: UUID, item: ItemNumber = 0
) -> dict[str, Any]:
    """The payload of a delivery, read back from Kafka: as it was received (base64), and decoded as a model sees it.

    410: it is not there any more. Audited.
    """
    rows = await deliveries.items(delivery_id)
    found = await deliveries.read(delivery_id, rows)
    decoded = deliveries.decode(found, rows[0] if rows else None)
    payload = shown(found.body, decoded, item)
    async with database.transaction() as conn:
        instance_id = rows[0]["instance_id"] if rows else None
        await access.audit_reading(conn, caller.name, "show_payload", instance_id=instance_id, subject=str(delivery_id))
    envelope = found.envelope
    return payload | {
        "content_type": None if envelope is None else envelope.content_type,
        "headers": {} if envelope is None else dict(envelope.http),
        "items": len(decoded.items) if isinstance(decoded, Decoded) else 0,
        "topic": found.record.topic,
        "partition": found.record.partition,
        "offset": found.record.offset,
    }


@router.post("/deliveries/{delivery_id}/replay", dependencies=[spends("replay")])
async def replay_delivery(
    deliveries: DeliveriesOf, caller: Operator, delivery_id: UUID, body: ReplayRequest
) -> ReplayAnswer:
    """Send a delivery again, under a new id. Its age and its being a duplicate do not count. Audited.

    410: it is not in Kafka any more (7 days; 30 for one that died).
    """
    replayed = await deliveries.replay(delivery_id, caller, force=body.force, item=body.item)
    place = replayed.place
    return ReplayAnswer(
        id=replayed.id, replay_of=delivery_id, topic=place.topic, partition=place.partition, offset=place.offset
    )


def shown(raw: bytes, decoded: Decoded | Undecodable | None, item: int = 0) -> dict[str, Any]:
    """A payload as bytes (base64) and, beside them, an item's view with what was changed in it. Raises ``Problem``."""
    answer: dict[str, Any] = {"raw": base64.b64encode(raw).decode(), "decoded": None, "changes": [], "reason": None}
    if decoded is None:
        return answer | {"reason": "bad_envelope"}
    if isinstance(decoded, Undecodable):
        return answer | {"reason": decoded.reason}
    chosen = next((one for one in decoded.items if one.index == item), None)
    if chosen is None:
        raise Problem(404, f"the delivery has no item {item}; it has {len(decoded.items)}")
    return answer | {"decoded": chosen.view, "changes": list(chosen.changes), "reason": chosen.problem}
