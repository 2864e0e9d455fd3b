"""What an operator tells a room: run now, go on after being parked; its outside tools and confirming them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from room_admin.access import DatabaseOf, Operator, Viewer
from room_admin.problems import Problem
from room_admin.routes.parameters import Page, PageQuery, page_of, room_of
from room_common.postgres import access, rooms, tools

router = APIRouter(tags=["rooms"])

RoomSlug = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Slug of a room.")]
ToolSlug = Annotated[str, Path(pattern=r"^[a-z0-9_-]{1,64}$", description="Name of a tool server of the room.")]


class TickAnswer(BaseModel):
    """Whether the room runs at once, or looks again when the cycle under way has ended."""

    room: Literal["woken", "running"]


class ResumeAnswer(BaseModel):
    """Why the room was parked."""

    parked_for: str


class ConfirmAnswer(BaseModel):
    """The tools that are on from now on and were not before."""

    confirmed: list[str]


@router.post("/instances/{slug}/tick")
async def tick(database: DatabaseOf, caller: Operator, slug: RoomSlug) -> TickAnswer:
    """Let a room look for work now, whatever it waits for."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        outcome = await rooms.run_now(conn, instance)
        if outcome == "disabled":
            raise Problem(409, f"the room {slug!r} is disabled: enable it first")
        if outcome == "parked":
            raise Problem(409, f"the room {slug!r} is parked after failed cycles: `room resume {slug}`")
        await access.audit(conn, caller.name, "tick", instance_id=instance, subject=slug)
    return TickAnswer(room=outcome)


@router.post("/instances/{slug}/resume")
async def resume(database: DatabaseOf, caller: Operator, slug: RoomSlug) -> ResumeAnswer:
    """Let a parked room run again."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        reason = await rooms.unpark(conn, instance)
        if reason is None:
            raise Problem(409, f"the room {slug!r} is not parked")
        await access.audit(conn, caller.name, "resume", instance_id=instance, subject=slug, detail={"reason": reason})
    return ResumeAnswer(parked_for=reason)


@router.get("/instances/{slug}/tools")
async def list_tools(database: DatabaseOf, _: Viewer, slug: RoomSlug, query: Annotated[PageQuery, Query()]) -> Page:
    """The outside tools of a room: servers and functions, how they were last found, and what of them is on."""
    after = query.after("s")
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        rows = await tools.listed(conn, instance, after=after[0] if after else "", limit=query.limit + 1)
    return page_of(rows, query.limit, ("name",))


@router.post("/instances/{slug}/tools/{name}/confirm")
async def confirm_tools(database: DatabaseOf, caller: Operator, slug: RoomSlug, name: ToolSlug) -> ConfirmAnswer:
    """Take a server's tools as they were last seen: those that have changed are on again."""
    async with database.transaction() as conn:
        instance = await room_of(conn, slug)
        changed = await tools.confirm(conn, instance, name)
        if changed is None:
            raise Problem(404, f"the room {slug!r} has no tool server {name!r}")
        await access.audit(
            conn, caller.name, "confirm_tools", instance_id=instance, subject=name, detail={"tools": changed}
        )
    return ConfirmAnswer(confirmed=changed)
