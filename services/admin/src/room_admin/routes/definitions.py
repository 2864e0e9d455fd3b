"""Trying a definition on deliveries that came in, before it decides anything."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from room_admin.access import DatabaseOf, Operator
from room_admin.allowance import Allowance
from room_admin.backtest import Backtest, Outcome, Question
from room_admin.domain.backtest import summary
from room_admin.problems import Problem
from room_admin.routes.parameters import SLUG, room_of
from room_common.contracts.envelope import KEPT_HEADERS
from room_common.contracts.room_document import DefinitionDocument
from room_common.domain.batching import splits
from room_common.domain.decoding import Decoded, decode_payload
from room_common.postgres import access, configuration, deliveries
from room_common.postgres.database import Connection

router = APIRouter(tags=["definitions"])

MAX_LAST = 500
BURST, SECONDS_EACH = 6, 10.0
AT_ONCE = 2


class Sample(BaseModel):
    """A payload as a sender would post it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    body: str = Field(max_length=65_536)
    content_type: str | None = Field("application/json", max_length=200)
    headers: dict[str, Annotated[str, Field(max_length=2048)]] = Field(
        default_factory=dict, max_length=64, description="Request headers, of which the event's name is shown."
    )


class DefinitionTest(BaseModel):
    """A new or changed definition, and what to try it on."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    definition: DefinitionDocument
    source: str = Field(min_length=1, max_length=120, description="The source's name or id.")
    room: str | None = Field(None, pattern=SLUG, description="Slug of the room, where sources share a name.")
    last: int | None = Field(
        None, ge=1, le=MAX_LAST, description="So many of the source's latest deliveries; 100 without a sample."
    )
    sample: Sample | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.last is not None and self.sample is not None:
            raise ValueError("either last or sample")
        return self


class TestedItem(BaseModel):
    """One item, as it was judged and as it would be. ``why``: the first 80 characters of the answer."""

    delivery_id: UUID | None
    item: int
    received_at: datetime | None
    outcome: str | None
    matched_by: str | None
    before: str | None
    after: str | None
    changed: bool
    why: str | None
    error: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    ms: int


class DefinitionTestAnswer(BaseModel):
    """What would change, and what asking cost. ``stopped``: why it did not come to the end."""

    room: str
    source: str
    definition: str
    known: bool
    tested: int
    changed: int
    unreadable: int
    failed: int
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    seconds: float
    stopped: str | None
    items: list[TestedItem]


class Tester:
    """A test as a caller may have it: not too often, and not too many at once."""

    def __init__(self, backtest: Backtest) -> None:
        self._backtest = backtest
        self._allowance = Allowance(BURST, SECONDS_EACH)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, caller: str, question: Question, subject: tuple[Decoded, dict[str, str]] | list[dict[str, Any]]
    ) -> Outcome:
        """Run a test. Raises ``Problem`` 429."""
        if self._slots.locked():
            raise Problem(429, f"{AT_ONCE} tests are running already; try again", retry_after=5)
        if wait := self._allowance.take(caller):
            raise Problem(429, "tests cost money, and these were many; try again", retry_after=math.ceil(wait))
        async with self._slots:
            if isinstance(subject, list):
                return await self._backtest.over_stored(question, subject)
            decoded, headers = subject
            return await self._backtest.over_sample(question, decoded.items, headers)


def tester_of(request: Request) -> Tester:
    """What runs tests, in this process."""
    found: Tester = request.app.state.tester
    return found


TesterOf = Annotated[Tester, Depends(tester_of)]


@dataclass(frozen=True, slots=True)
class _Source:
    row: dict[str, Any]
    definition_id: UUID | None

    def question(self, body: DefinitionTest) -> Question:
        return Question(
            self.row["name"], self.row["source_type"], body.definition.match, self.definition_id, self.row["fast_model"]
        )


@router.post("/definitions/test")
async def test_definition(
    database: DatabaseOf, tester: TesterOf, caller: Operator, body: DefinitionTest
) -> DefinitionTestAnswer:
    """Ask a definition's question about stored deliveries, or a sample, and show which verdicts would change.

    Nothing but the audit log is written. Takes up to 100 s; 429 with Retry-After for too many tests.
    """
    async with database.transaction() as conn:
        source = await _source(conn, body)
        rows = [] if body.sample else list(await deliveries.latest(conn, source.row["id"], body.last or 100))
        await access.audit(
            conn,
            caller.name,
            "test_definition",
            instance_id=source.row["instance_id"],
            subject=str(source.row["id"]),
            detail={"definition": body.definition.name, "deliveries": len(rows)},
        )
    question = source.question(body)
    outcome = await tester.run(caller.name, question, rows if body.sample is None else _sample(body.sample, source))
    counts = summary(outcome.results)
    return DefinitionTestAnswer(
        room=source.row["slug"],
        source=source.row["name"],
        definition=body.definition.name,
        known=source.definition_id is not None,
        tested=counts.tested,
        changed=counts.changed,
        unreadable=counts.unreadable,
        failed=counts.failed,
        calls=outcome.calls,
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.cached_tokens,
        seconds=outcome.seconds,
        stopped=outcome.stopped,
        items=[TestedItem.model_validate(row, from_attributes=True) for row in outcome.results],
    )


async def _source(conn: Connection, body: DefinitionTest) -> _Source:
    """The living source that is meant, and the definition of that name if it has one. Raises ``Problem``."""
    instance = None if body.room is None else await room_of(conn, body.room)
    source_id = None
    with suppress(ValueError):
        source_id = UUID(body.source)
    found = await deliveries.sources(conn, name=body.source, source_id=source_id, instance_id=instance)
    if not found:
        raise Problem(404, f"there is no source {body.source!r}" + (f" in {body.room}" if body.room else ""))
    if len(found) > 1:
        raise Problem(409, f"several rooms have a source {body.source!r}: say which room")
    for definition in await configuration.read_definitions(conn, found[0]["instance_id"]):
        if definition["event_source_id"] == found[0]["id"] and definition["name"] == body.definition.name:
            return _Source(found[0], definition["id"])
    return _Source(found[0], None)


def _sample(sample: Sample, source: _Source) -> tuple[Decoded, dict[str, str]]:
    headers = {name.lower(): value for name, value in sample.headers.items() if name.lower() in KEPT_HEADERS}
    headers.pop("content-encoding", None)
    split = splits(source.row["source_type"], None)
    try:
        raw = sample.body.encode()
    except UnicodeEncodeError:
        raise Problem(422, "the sample is not text") from None
    decoded = decode_payload(raw, sample.content_type, headers, split=split)
    if not isinstance(decoded, Decoded):
        raise Problem(422, f"the sample can't be decoded: {decoded.reason}")
    return decoded, headers
