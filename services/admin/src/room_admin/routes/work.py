"""What is done about what came in: backlog, inbox, cycles, messages, activity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.problems import Problem
from room_admin.routes.deliveries import shown
from room_admin.routes.parameters import (
    ActivityQuery,
    BacklogQuery,
    CyclesQuery,
    InboxQuery,
    MessagesQuery,
    Page,
    PageQuery,
    Since,
    Slug,
    list_page,
    page_of,
    read_one,
    room_of,
)
from room_admin.spending import spends
from room_common.domain.decoding import decode_payload
from room_common.postgres import access, listings, retries, sending, service_state, statistics
from room_common.postgres.access import Caller
from room_common.postgres.database import Connection, Database
from room_common.postgres.listings import ListName

router = APIRouter(tags=["work"])


@router.get("/backlog")
async def list_backlog(database: DatabaseOf, caller: Viewer, query: Annotated[BacklogQuery, Query()]) -> Page:
    """Matched events and what became of them."""
    return await list_page(database, caller, "backlog", query)


@router.get("/backlog/{event_id}")
async def show_event(database: DatabaseOf, caller: Viewer, event_id: UUID) -> dict[str, Any]:
    """One matched event."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "backlog", event_id)


@router.get("/backlog/{event_id}/payload", dependencies=[spends("read")])
async def show_payload(database: DatabaseOf, caller: Operator, event_id: UUID) -> dict[str, Any]:
    """The payload of an event: as it was received (base64), and decoded as a model sees it. Audited."""
    async with database.transaction() as conn:
        row = await listings.payload(conn, event_id)
        if row is None:
            raise Problem(404, "there is no such event")
        await access.audit_reading(
            conn, caller.name, "show_event_payload", subject=str(event_id), instance_id=row["instance_id"]
        )
    raw = bytes(row["raw_body"])
    return shown(raw, decode_payload(raw, row["content_type"], row["headers"], split=False))


@router.post("/backlog/{event_id}/retry")
async def retry_event(database: DatabaseOf, caller: Operator, event_id: UUID) -> dict[str, Any]:
    """Offer a failed event again, its attempts forgotten. Audited."""
    wanted = "only a failed event is offered again"
    return await _change(database, caller, "backlog", event_id, "retry_event", retries.retry_event, wanted)


@router.post("/backlog/{event_id}/complete")
async def complete_event(database: DatabaseOf, caller: Operator, event_id: UUID) -> dict[str, Any]:
    """Close a pending or failed event without a cycle. Audited."""
    change = partial(retries.complete_event, note=f"completed by {caller.name}")
    wanted = "only a pending or failed event can be completed"
    return await _change(database, caller, "backlog", event_id, "complete_event", change, wanted)


@router.post("/inbox/{reply_id}/retry")
async def retry_reply(database: DatabaseOf, caller: Operator, reply_id: UUID) -> dict[str, Any]:
    """Let the room read a failed reply again. Audited."""
    wanted = "only a failed reply is read again"
    return await _change(database, caller, "inbox", reply_id, "retry_reply", retries.retry_reply, wanted)


@router.get("/inbox")
async def list_inbox(database: DatabaseOf, caller: Viewer, query: Annotated[InboxQuery, Query()]) -> Page:
    """Human replies and their fate. Sender and text are for operators."""
    return await list_page(database, caller, "inbox", query)


@router.get("/inbox/{reply_id}")
async def show_reply(database: DatabaseOf, caller: Viewer, reply_id: UUID) -> dict[str, Any]:
    """One human reply."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "inbox", reply_id)


@router.get("/cycles")
async def list_cycles(database: DatabaseOf, caller: Viewer, query: Annotated[CyclesQuery, Query()]) -> Page:
    """Runs of the supervisor."""
    return await list_page(database, caller, "cycles", query)


@router.get("/cycles/{cycle_id}")
async def show_cycle(database: DatabaseOf, caller: Viewer, cycle_id: UUID) -> dict[str, Any]:
    """One run."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "cycles", cycle_id)


@router.get("/cycles/{cycle_id}/messages", dependencies=[spends("read")])
async def show_transcript(
    database: DatabaseOf, caller: Operator, cycle_id: UUID, query: Annotated[PageQuery, Query()]
) -> Page:
    """The transcript of a run, in order. Audited."""
    after = query.after("i")
    async with database.transaction() as conn:
        await read_one(conn, caller, "cycles", cycle_id)
        await access.audit_reading(conn, caller.name, "show_transcript", subject=str(cycle_id))
        rows = await listings.transcript(conn, cycle_id, after=after[0] if after else None, limit=query.limit + 1)
    return page_of(rows, query.limit, ("seq",))


@router.get("/messages")
async def list_messages(database: DatabaseOf, caller: Viewer, query: Annotated[MessagesQuery, Query()]) -> Page:
    """Outbound messages. Target and text are for operators."""
    return await list_page(database, caller, "messages", query)


@router.get("/messages/{message_id}")
async def show_message(database: DatabaseOf, caller: Viewer, message_id: UUID) -> dict[str, Any]:
    """One outbound message."""
    async with database.transaction() as conn:
        return await read_one(conn, caller, "messages", message_id)


@router.post("/messages/{message_id}/resend")
async def resend_message(database: DatabaseOf, caller: Operator, message_id: UUID) -> dict[str, Any]:
    """Queue a failed or unknown message again, behind what its target has waiting. Audited."""
    wanted = "only a failed or unknown message is sent again"
    return await _change(database, caller, "messages", message_id, "resend_message", sending.resend, wanted)


async def _change(
    database: Database,
    caller: Caller,
    name: ListName,
    row_id: UUID,
    action: str,
    change: Callable[[Connection, UUID], Awaitable[UUID | None]],
    wanted: str,
) -> dict[str, Any]:
    """Do ``change`` to a row and audit it as ``action``. 409 says what is ``wanted`` where the state forbids it."""
    async with database.transaction() as conn:
        row = await read_one(conn, caller, name, row_id)
        instance_id = await change(conn, row_id)
        if instance_id is None:
            raise Problem(409, f"{wanted}; this one is {row['status']}")
        await access.audit(conn, caller.name, action, instance_id=instance_id, subject=str(row_id))
        return await read_one(conn, caller, name, row_id)


@router.get("/activity")
async def list_activity(database: DatabaseOf, caller: Viewer, query: Annotated[ActivityQuery, Query()]) -> Page:
    """Notable actions."""
    return await list_page(database, caller, "activity", query)


@router.get("/stats")
async def show_stats(database: DatabaseOf, _: Viewer, room: Slug | None = None, since: Since = None) -> dict[str, Any]:
    """Counts since a time, the last 24 hours by default."""
    async with database.transaction() as conn:
        instance = None if room is None else await room_of(conn, room)
        return await statistics.stats(conn, instance, since)


@router.get("/services")
async def list_services(database: DatabaseOf, _: Viewer, query: Annotated[PageQuery, Query()]) -> Page:
    """The processes of this installation: version, lag, what they are held by, when they last reported."""
    after = query.after("ss")
    async with database.transaction() as conn:
        rows = await service_state.list_states(conn, after=after or ("", ""), limit=query.limit + 1)
    return page_of(rows, query.limit, ("service", "process"))
