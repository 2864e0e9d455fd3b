"""Answering an agent, as the person at this installation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from room_admin.access import Operator
from room_admin.answers import Answers
from room_admin.routes.instances import RoomSlug
from room_admin.spending import spends

router = APIRouter(tags=["work"])


class AnswerRequest(BaseModel):
    """What to answer."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000)] = Field(
        description="What the agent reads."
    )


class AnswerAnswer(BaseModel):
    """As whom it was answered; the inbox shows what became of it."""

    sender: str


def answers_of(request: Request) -> Answers:
    """What sends answers, in this process."""
    found: Answers = request.app.state.answers
    return found


AnswersOf = Annotated[Answers, Depends(answers_of)]


@router.post("/instances/{slug}/answer", dependencies=[spends("write")])
async def answer_room(answers: AnswersOf, caller: Operator, slug: RoomSlug, body: AnswerRequest) -> AnswerAnswer:
    """Answer the agent of a room that talks on the local channel, as the person it writes to. Audited."""
    return AnswerAnswer(sender=await answers.answer(slug, body.text, caller))
