"""When the configuration of a source is remembered, and when it is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest

from room_common.contracts.envelope import Envelope, encode
from room_common.contracts.topics import WEBHOOKS_RAW
from room_common.domain.deliveries import Source
from room_common.kafka.records import Record
from room_common.postgres import sources
from room_common.postgres.database import Database
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.handlers.delivery import open_record


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class NoDatabase:
    @asynccontextmanager
    async def transaction(self) -> Any:
        yield None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    read: list[bytes] = []

    async def by_tokens(_: object, tokens: Sequence[bytes]) -> Mapping[bytes, Source]:
        read.extend(tokens)
        return {token: cast(Source, f"{token!r} {len(read)}") for token in tokens if token != b"nobody's"}

    monkeypatch.setattr(sources, "by_tokens", by_tokens)
    return read


def cache(clock: Clock) -> SourceCache:
    return SourceCache(cast(Database, NoDatabase()), 2.0, clock=clock, now=clock)


async def test_a_source_is_read_once_in_its_time(reads: list[bytes]) -> None:
    clock = Clock()
    remembered = cache(clock)
    first = await remembered.find(b"a")
    clock.at += 1.9
    assert await remembered.find(b"a") is first
    clock.at += 0.2
    assert (await remembered.find(b"a")).source != first.source
    assert reads == [b"a", b"a"]


async def test_what_is_older_than_the_question_is_read_again(reads: list[bytes]) -> None:
    clock = Clock()
    remembered = cache(clock)
    first = await remembered.find(b"a")
    clock.at += 1.0
    assert await remembered.find(b"a", since=999.9) is first
    second = await remembered.find(b"a", since=1000.0)
    assert (second.read_at, len(reads)) == (1001.0, 2)
    assert (await remembered.find(b"a", since=float("inf"))).read_at == 1001.0
    assert len(reads) == 3


async def test_a_token_of_nobody_is_never_remembered(reads: list[bytes]) -> None:
    remembered = cache(Clock())
    for _ in range(2):
        assert (await remembered.find(b"nobody's")).source is None
    assert len(reads) == 2


@pytest.mark.parametrize(("appended_ms", "settled"), [(1_000_000, 1001.0), (0, float("inf")), (-1, float("inf"))])
def test_configuration_is_surely_newer_than_a_record_a_second_after_it_was_appended(
    appended_ms: int, settled: float
) -> None:
    envelope = Envelope(id=UUID(int=1), token_sha256=bytes(32), received_at_us=1)
    record = Record(WEBHOOKS_RAW, 0, 0, appended_ms, b"key", b"{}", encode(envelope))
    assert open_record(record).settled_at_s == settled
