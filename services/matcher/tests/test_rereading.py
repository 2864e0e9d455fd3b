"""A no that outdated configuration may cause is looked at again: a source that was read before the record came."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from room_common.contracts.envelope import Envelope, encode
from room_common.contracts.topics import WEBHOOKS_RAW
from room_common.domain.decoding import Item
from room_common.domain.deliveries import Definition, Source
from room_common.kafka.records import Record
from room_common.postgres import ledger
from room_matcher.adapters.source_cache import Found, SourceCache
from room_matcher.domain.cascade import Stop, moment
from room_matcher.handlers.deliveries import Deliveries
from room_matcher.handlers.delivery import open_record
from room_matcher.handlers.items import Items, Subject
from room_matcher.handlers.opened import OpenedRecords
from room_matcher.metrics import MatcherMetrics

APPENDED = 1_700_000_000.0
SETTLED = APPENDED + 1.0
GOOD = Source(
    id=UUID(int=1),
    instance_id=UUID(int=2),
    name="s",
    source_type="generic",
    enabled=True,
    deleted=False,
    config=None,
    token_encrypted=b"",
    valid_until=None,
    instance_active=True,
    instance_deleted=False,
    room_enabled=True,
    fast_model=None,
    definitions=(Definition(UUID(int=3), "d", "a push"),),
)
DISABLED = replace(GOOD, enabled=False)
EMPTY = replace(GOOD, definitions=())


@dataclass
class Sources:
    """What is remembered, then what the database has; ``asked`` is since when, of each question."""

    remembered: Source
    read_at: float
    current: Source
    asked: list[float] = field(default_factory=list)

    async def find(self, token_sha256: bytes, *, since: float = 0.0) -> Found:
        self.asked.append(since)
        return Found(self.remembered, self.read_at) if len(self.asked) == 1 else Found(self.current, SETTLED + 9)


class Rows:
    """Takes the rows of what was stopped."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    async def record(self, entry: ledger.Entry) -> bool:
        self.outcomes.append(entry.outcome)
        return True


def record() -> Record:
    envelope = Envelope(id=UUID(int=4), token_sha256=bytes(32), received_at_us=int(APPENDED * 1e6))
    return Record(WEBHOOKS_RAW, 0, 0, int(APPENDED * 1000), b"key", b"{}", encode(envelope))


@pytest.mark.parametrize(
    ("read_at", "current", "outcome", "asked"),
    [
        (SETTLED, replace(GOOD, valid_until=moment(0)), "unknown_token", [0.0, SETTLED]),
        (SETTLED + 0.001, GOOD, "source_disabled", [0.0]),
    ],
)
async def test_a_request_that_an_outdated_source_stops(
    read_at: float, current: Source, outcome: str, asked: list[float]
) -> None:
    sources, rows = Sources(DISABLED, read_at, current), Rows()
    subject = Deliveries(
        database=cast(Any, None),
        sources=cast(SourceCache, sources),
        secrets=cast(Any, None),
        items=cast(Items, rows),
        opened=OpenedRecords(10),
        slow_lane=cast(Any, None),
        metrics=MatcherMetrics(CollectorRegistry()),
        attempts=3,
    )
    await subject.handle(record())
    assert (rows.outcomes, sources.asked) == ([outcome], asked)


@pytest.mark.parametrize(
    ("remembered", "read_at", "stop", "asked"),
    [
        (DISABLED, SETTLED, None, [0.0, SETTLED]),
        (EMPTY, SETTLED, None, [0.0, SETTLED]),
        (DISABLED, SETTLED + 0.001, Stop("source_disabled"), [0.0]),
        (GOOD, SETTLED, None, [0.0]),
    ],
)
async def test_an_item_that_an_outdated_source_does_not_want(
    remembered: Source, read_at: float, stop: Stop | None, asked: list[float]
) -> None:
    sources = Sources(remembered, read_at, GOOD)
    nothing = cast(Any, None)
    items = Items(
        database=nothing,
        sources=cast(SourceCache, sources),
        writer=nothing,
        admission=nothing,
        classifier=nothing,
        dead_letters=nothing,
        fallbacks=nothing,
        gate=nothing,
        metrics=nothing,
        cap=1,
    )
    item = Item(0, {}, b"{}", (), "application/json", None)
    found, reason = await items._current(Subject(open_record(record()), item, remembered, False, 60))
    assert (reason, sources.asked) == (stop, asked)
    assert found == (remembered if stop else GOOD)
