"""The installation itself: who may use it, where senders post to, and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from room_admin.access import DatabaseOf
from room_admin.panel import pages
from room_admin.panel.forms import Refused, read_form, taking
from room_admin.panel.sessions import Operating, VisitingOperator
from room_admin.problems import Problem
from room_admin.routes import callers
from room_admin.routes.callers import TokenId
from room_admin.routes.parameters import SLUG, PageQuery, read_page
from room_common.postgres import overflow, panel_parts, panel_sessions, panel_views

router = APIRouter()

_ROWS = 50
Name = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.get("/audit")
async def show_audit(
    request: Request,
    database: DatabaseOf,
    visit: VisitingOperator,
    room: Annotated[str, Query(pattern=rf"^$|{SLUG}")] = "",
    actor: Name = "",
    action: Name = "",
    cursor: str = "",
) -> Response:
    """What operators did and read, newest first."""
    filters: dict[str, object] = {"room": room or None, "actor": actor or None, "action": action or None}
    async with database.transaction() as conn:
        found = await read_page(conn, visit.caller, "audit", filters, cursor=cursor or None, limit=_ROWS)
        rooms = await panel_views.room_names(conn)
    return pages.page(
        request,
        "audit.html",
        visit,
        rooms=rooms,
        asked={"room": room, "actor": actor, "action": action},
        rows=found.items,
        next=found.next,
        first=not cursor,
    )


@router.get("/settings")
async def show_settings(request: Request, database: DatabaseOf, visit: VisitingOperator) -> Response:
    """Who may use the installation, never a token; addresses; what waits in the overflow table."""
    tokens = await callers.list_tokens(database, visit.caller, PageQuery())
    async with database.transaction() as conn:
        waiting = await overflow.total_of(conn)
        sessions = await panel_parts.open_sessions(conn)
    return pages.page(
        request,
        "settings.html",
        visit,
        holders=sorted(tokens.items, key=lambda row: row["revoked_at"] is not None),
        waiting=waiting,
        sessions=sessions,
        public_url=request.app.state.urls.public_url,
        session_hours=panel_sessions.HOURS,
    )


@router.post("/settings/tokens")
async def make_token(request: Request, database: DatabaseOf, visit: Operating) -> Response:
    """Let somebody in; the answer shows the token, this once."""
    form = await read_form(request)
    try:
        with taking(("name", "role")):
            body = callers.NewToken.model_validate({"name": form.text("name"), "role": form.text("role")})
            answer = await callers.make_token(database, visit.caller, body)
    except Refused as refused:
        told = " ".join((*refused.wrong.fields.values(), *refused.wrong.general))
        raise Problem(422, told) from None
    return pages.page(request, "token.html", visit, answer=answer)


@router.post("/settings/tokens/{token_id}/revoke")
async def revoke_token(database: DatabaseOf, visit: Operating, token_id: TokenId) -> Response:
    """End a token, and what was opened with it."""
    await callers.revoke_token(database, visit.caller, token_id)
    return Response(headers={"HX-Refresh": "true"})
