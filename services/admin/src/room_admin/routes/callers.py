"""Who may use the API, and what they did."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.problems import Problem
from room_admin.routes.parameters import ListQuery, Page, PageQuery, list_page, page_of
from room_common.contracts.room_document import Name
from room_common.domain.tokens import token_digest
from room_common.postgres import access
from room_common.postgres.access import Role

router = APIRouter(tags=["access"])

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="`id` of a token.")]
Word = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00]*$")]


class AuditQuery(ListQuery):
    """The audit log's filters."""

    actor: Word | None = Field(None, description="Name of who did it.")
    action: Annotated[str, Field(pattern=r"^[a-z_]{1,60}$")] | None = None


class CallerOut(BaseModel):
    """Whose token was sent."""

    name: str
    role: Role


class NewToken(BaseModel):
    """Whom to let in."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Name
    role: Role


class TokenAnswer(BaseModel):
    """The token, shown this once."""

    id: str
    name: str
    role: Role
    token: str


class RevokeAnswer(BaseModel):
    """Whose token is not valid any more."""

    id: str
    name: str


@router.get("/me")
async def show_me(caller: Viewer) -> CallerOut:
    """Who calls, and what they may do."""
    return CallerOut(name=caller.name, role=caller.role)


@router.get("/tokens")
async def list_tokens(database: DatabaseOf, _: Operator, query: Annotated[PageQuery, Query()]) -> Page:
    """Every token and its holder, revoked ones too. Never the token itself."""
    after = query.after("ts")
    async with database.transaction() as conn:
        rows = await access.holders(conn, after=after, limit=query.limit + 1)
    return page_of(rows, query.limit, ("created_at", "id"))


@router.post("/tokens", status_code=201)
async def make_token(database: DatabaseOf, caller: Operator, body: NewToken) -> TokenAnswer:
    """Let somebody in. The answer has the token, which is stored as a digest only. Audited."""
    token = "room_" + secrets.token_urlsafe(32)
    async with database.transaction() as conn:
        row = await access.add_holder(conn, token_digest(token), body.name, body.role)
        detail = {"name": body.name, "role": body.role}
        await access.audit(conn, caller.name, "make_token", subject=row["id"], detail=detail)
    return TokenAnswer(id=row["id"], name=row["name"], role=row["role"], token=token)


@router.delete("/tokens/{token_id}")
async def revoke_token(database: DatabaseOf, caller: Operator, token_id: TokenId) -> RevokeAnswer:
    """Revoke a token: it ends at once, with the panel's sessions and live streams that were opened with it. Audited."""
    async with database.transaction() as conn:
        name = await access.revoke(conn, token_id)
        if name is None:
            raise Problem(404, "there is no such token, or it was revoked already")
        if name is False:
            raise Problem(409, "it is the last operator's: nobody could change anything any more")
        await access.audit(conn, caller.name, "revoke_token", subject=token_id, detail={"name": name})
    return RevokeAnswer(id=token_id, name=name)


@router.get("/audit")
async def list_audit(database: DatabaseOf, caller: Operator, query: Annotated[AuditQuery, Query()]) -> Page:
    """What callers did: who, when, what, and to which room or thing."""
    return await list_page(database, caller, "audit", query)
