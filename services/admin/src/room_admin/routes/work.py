"""What comes in and what is done about it: deliveries, backlog, inbox, cycles, messages, activity."""

from __future__ import annotations

import base64
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.problems import Problem
from room_admin.routes.parameters import (
    Cursor,
    CycleStatus,
    EventStatus,
    Limit,
    MessageStatus,
    Page,
    ReplyStatus,
    Since,
    Slug,
    read_one,
    read_page,
    room_of,
)
from room_common.domain.decoding import Undecodable, decode_payload
from room_common.domain.deliveries import Outcome
from room_common.postgres import access, listings, sending

router = APIRouter(tags=["work"])

Word = Annotated[str | None, Query(pattern=r"^[a-z_]{1,40}$")]
SourceName = Annotated[str | None, Query(min_length=1, max_length=120, pattern=r"^[^\x00]*$")]


@router.get("/deliveries")
async def list_deliveries(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    source: SourceName = None,
    outcome: Outcome | None = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """The ledger: every item of every delivery and its outcome."""
    filters: dict[str, object] = {"room": room, "source": source, "outcome": outcome, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "deliveries", filters, cursor=cursor, limit=limit)


@router.get("/deliveries/{delivery_id}")
async def show_delivery(database: DatabaseOf, caller: Viewer, delivery_id: UUID) -> Page:
    """Every item of one delivery."""
    async with database.transaction() as conn:
        page = await read_page(conn, caller, "deliveries", {"id": delivery_id}, cursor=None, limit=100)
    if not page.items:
        raise Problem(404, "there is no such delivery, or it has not been decided yet")
    return page


@router.get("/backlog")
async def list_backlog(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    status: EventStatus | None = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """Matched events and what became of them."""
    filters: dict[str, object] = {"room": room, "status": status, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "backlog", filters, cursor=cursor, limit=limit)


@router.get("/backlog/{event_id}")
async def show_event(database: DatabaseOf, caller: Viewer, event_id: UUID) -> dict[str, Any]:
    """One matched event."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "backlog", event_id)


@router.get("/backlog/{event_id}/payload")
async def show_payload(database: DatabaseOf, _: Operator, event_id: UUID) -> dict[str, Any]:
    """The payload of an event: as it was received (base64), and decoded as a model sees it."""
    async with database.transaction() as conn:
        row = await listings.payload(conn, event_id)
    if row is None:
        raise Problem(404, "there is no such event")
    raw = bytes(row["raw_body"])
    decoded = decode_payload(raw, row["content_type"], row["headers"], split=False)
    if isinstance(decoded, Undecodable):
        return {"raw": base64.b64encode(raw).decode(), "decoded": None, "changes": [], "reason": decoded.reason}
    item = decoded.items[0]
    return {"raw": base64.b64encode(raw).decode(), "decoded": item.view, "changes": list(item.changes), "reason": None}


@router.get("/inbox")
async def list_inbox(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    status: ReplyStatus | None = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """Human replies and their fate. Sender and text are for operators."""
    filters: dict[str, object] = {"room": room, "status": status, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "inbox", filters, cursor=cursor, limit=limit)


@router.get("/cycles")
async def list_cycles(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    status: CycleStatus | None = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """Runs of the supervisor."""
    filters: dict[str, object] = {"room": room, "status": status, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "cycles", filters, cursor=cursor, limit=limit)


@router.get("/cycles/{cycle_id}")
async def show_cycle(database: DatabaseOf, caller: Viewer, cycle_id: UUID) -> dict[str, Any]:
    """One run."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "cycles", cycle_id)


@router.get("/cycles/{cycle_id}/messages")
async def show_transcript(database: DatabaseOf, caller: Operator, cycle_id: UUID) -> Page:
    """The transcript of a run, in order."""
    async with database.transaction() as conn:
        await read_one(conn, caller, "cycles", cycle_id)
        return Page(items=list(await listings.transcript(conn, cycle_id)), next=None)


@router.get("/messages")
async def list_messages(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    status: MessageStatus | None = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """Outbound messages. Target and text are for operators."""
    filters: dict[str, object] = {"room": room, "status": status, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "messages", filters, cursor=cursor, limit=limit)


@router.post("/messages/{message_id}/resend")
async def resend_message(database: DatabaseOf, caller: Operator, message_id: UUID) -> dict[str, Any]:
    """Queue a failed or unknown message again, behind what its target has waiting. Audited."""
    async with database.transaction() as conn:
        message = await read_one(conn, caller, "messages", message_id)
        instance_id = await sending.resend(conn, message_id)
        if instance_id is None:
            raise Problem(409, f"only a failed or unknown message is sent again; this one is {message['status']}")
        await access.audit(conn, caller.name, "resend_message", instance_id=instance_id, subject=str(message_id))
        return await read_one(conn, caller, "messages", message_id)


@router.get("/activity")
async def list_activity(
    database: DatabaseOf,
    caller: Viewer,
    room: Slug | None = None,
    kind: Word = None,
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page:
    """Notable actions."""
    filters: dict[str, object] = {"room": room, "kind": kind, "since": since}
    async with database.transaction() as conn:
        return await read_page(conn, caller, "activity", filters, cursor=cursor, limit=limit)


@router.get("/stats")
async def show_stats(database: DatabaseOf, _: Viewer, room: Slug | None = None, since: Since = None) -> dict[str, Any]:
    """Counts since a time, the last 24 hours by default."""
    async with database.transaction() as conn:
        instance = None if room is None else await room_of(conn, room)
        return await listings.stats(conn, instance, since)


@router.get("/services")
async def list_services(database: DatabaseOf, _: Viewer) -> Page:
    """The processes of this installation: version, lag, what they are held by, when they last reported."""
    async with database.transaction() as conn:
        return Page(items=list(await listings.services(conn)), next=None)
