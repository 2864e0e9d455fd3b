"""What a room's agent and its person write to each other, and answering."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from room_admin.access import DatabaseOf
from room_admin.domain.form_errors import Wrong
from room_admin.panel import pages
from room_admin.panel.forms import read_form
from room_admin.panel.sessions import Operating, Visit, VisitingOperator, spends
from room_admin.problems import Problem
from room_admin.routes import answers as api
from room_admin.routes.answers import AnswerRequest, AnswersOf
from room_admin.routes.instances import RoomSlug
from room_admin.routes.parameters import room_of
from room_common.postgres import access, listings, panel_parts
from room_common.postgres.database import Database

router = APIRouter()

_LATEST = 40


@router.get("/rooms/{slug}/conversation")
async def show_conversation(
    request: Request, database: DatabaseOf, visit: VisitingOperator, slug: RoomSlug
) -> Response:
    """Messages and replies in one thread. Audited, as texts are for operators."""
    return await _show(request, database, visit, slug, "", Wrong())


@router.post("/rooms/{slug}/conversation", dependencies=[spends("write")])
async def answer(
    request: Request, database: DatabaseOf, answers: AnswersOf, visit: Operating, slug: RoomSlug
) -> Response:
    """Answer the agent; the scheduler decides what becomes of it, as of every reply."""
    form = await read_form(request)
    try:
        body = AnswerRequest(text=form.text("text"))
    except ValidationError:
        wrong = Wrong({"text": "Write between 1 and 16,000 characters."})
        return await _show(request, database, visit, slug, form.text("text"), wrong)
    await api.answer_room(answers, visit.caller, slug, body)
    return await _show(request, database, visit, slug, "", Wrong(), said=True)


async def _show(
    request: Request, database: Database, visit: Visit, slug: str, text: str, wrong: Wrong, *, said: bool = False
) -> Response:
    async with database.transaction() as conn:
        instance: UUID = await room_of(conn, slug)
        room = await listings.room(conn, instance)
        if room is None:
            raise Problem(404, f"there is no room {slug!r}")
        turns = await panel_parts.conversation(conn, instance, _LATEST)
        await access.audit_reading(
            conn, visit.caller.name, "show_conversation", subject=str(instance), instance_id=instance
        )
    return pages.page(
        request, "conversation.html", visit, wrong.status, room=room, turns=turns, text=text, wrong=wrong, said=said
    )
