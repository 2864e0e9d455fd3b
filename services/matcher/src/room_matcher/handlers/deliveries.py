"""What is done with a record of the raw topic: the executor's side of the matcher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from room_common.advice import explain
from room_common.coalescing import Coalescer
from room_common.contracts.topics import WEBHOOKS_SLOW
from room_common.domain.batching import splits
from room_common.domain.decoding import Decoded, Item, decode_payload
from room_common.domain.deliveries import Source
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.faults import crash_point
from room_common.kafka.execution import Postponed
from room_common.kafka.records import Record
from room_common.postgres import decisions
from room_common.postgres.database import Database
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.adapters.source_secrets import Opened, SourceSecrets
from room_matcher.domain.cascade import (
    RECHECKED,
    Accepted,
    Stop,
    check_source,
    judge,
    lane_key,
    surely_one_item,
)
from room_matcher.domain.delivery_identity import BODY_TTL_S
from room_matcher.handlers.delivery import Delivery, nameless
from room_matcher.handlers.items import Items, Subject
from room_matcher.handlers.opened import OpenedRecords
from room_matcher.handlers.slow_lane import SlowLane
from room_matcher.metrics import MatcherMetrics

ITEMS_AT_ONCE: Final = 8
"""Items of one delivery that are worked on side by side."""

QUIET_SECONDS: Final = 60.0
"""So long the same warning is not written again."""

KEY: Final = "key"
"""The dependency that is missing when an encryption key is not known here."""

UNKNOWN_KEY: Final = "unknown_key"
"""Under this reason a record of the slow lane waits for such a key."""

log = structlog.get_logger(__name__)


class Deliveries:
    """Walks each delivery through the cascade up to its items, and each item to its outcome."""

    def __init__(
        self,
        *,
        database: Database,
        sources: SourceCache,
        secrets: SourceSecrets,
        items: Items,
        opened: OpenedRecords,
        slow_lane: SlowLane,
        metrics: MatcherMetrics,
        attempts: int,
    ) -> None:
        self._database = database
        self._sources = sources
        self._secrets = secrets
        self._items = items
        self._opened = opened
        self._slow_lane = slow_lane
        self._metrics = metrics
        self._attempts = attempts
        self._warned_at = float("-inf")
        self._decided: Coalescer[decisions.Key, set[int]] = Coalescer(self._read_decided)
        self._receipts: Coalescer[UUID, datetime | None] = Coalescer(self._read_receipts)

    def dedup_key(self, record: Record) -> bytes | None:
        """Equal for copies of one delivery, so that they run one after the other."""
        try:
            delivery = self._opened.open(record)
        except DeadLetter:
            return None
        return lane_key(delivery.envelope.token_sha256, delivery.envelope.http, delivery.body)

    async def already_done(self, records: Sequence[Record]) -> set[tuple[int, int]]:
        """Those of a fetched batch that the ledger has already, as (partition, offset).

        A delivery that may have several items is never among them: its items are looked at one by one.
        """
        single: dict[tuple[int, int], decisions.Key] = {}
        for record in records:
            try:
                delivery = self._opened.open(record)
            except DeadLetter:
                continue
            if surely_one_item(delivery.body, delivery.envelope.http):
                single[record.partition, record.offset] = delivery.key
        if not single:
            return set()
        crash_point("matcher.before_look_up")
        async with self._database.transaction() as conn:
            decided = await decisions.decided(conn, list(single.values()))
        crash_point("matcher.after_look_up")
        done = {place for place, (_, delivery_id) in single.items() if delivery_id in decided}
        self._metrics.already_decided(len(done))
        return done

    def share_key(self, record: Record) -> bytes | None:
        """Whose share of the buffer a record takes: its token's."""
        try:
            return self._opened.open(record).envelope.token_sha256
        except DeadLetter:
            return None

    async def handle(self, record: Record) -> None:
        """Decide every item of the record. Raises ``DependencyUnavailable`` and ``Postponed`` to be called again."""
        async with self._apart_without_key(record):
            await self._handle(record)
        self._opened.forget(record)

    @asynccontextmanager
    async def _apart_without_key(self, record: Record) -> AsyncIterator[None]:
        """A source whose secrets need a key that this process does not have must wait for it, and nobody else must.

        Its records go round in the slow lane until the key is there: each rests for a while, then goes to the end.
        """
        try:
            yield
        except DependencyUnavailable as error:
            if error.dependency != KEY:
                raise
            self._warn_of_key(error)
            rest = self._slow_lane.rest(record)
            if rest > 0:
                raise Postponed(UNKNOWN_KEY, rest) from None
            await self._slow_lane.take([record], "key_again" if record.topic == WEBHOOKS_SLOW else "key")

    def _warn_of_key(self, error: DependencyUnavailable) -> None:
        now = time.monotonic()
        if now - self._warned_at >= QUIET_SECONDS:
            self._warned_at = now
            log.warning("records of a source wait in the slow lane for an encryption key", why=explain(error))

    async def _handle(self, record: Record) -> None:
        try:
            delivery = await self._open(record)
        except DeadLetter as error:
            await self._bury_nameless(record, error)
            return
        source, opened, verdict = await self._judged(delivery)
        if isinstance(verdict, Stop):
            await self._stop(delivery, source, opened, verdict)
            return
        assert source is not None
        items = _meant(delivery, verdict.items)
        if not items:
            await self._stop(delivery, source, opened, Stop("undecodable", "no_such_item"))
            return
        ttl, of = _body_ttl(opened), len(items)
        await self._each([Subject(delivery, item, source, verdict.verified, ttl, of) for item in items])

    async def on_poison(self, record: Record, error: Exception) -> None:
        """Put a record aside that failed for no foreseen reason; items that were decided stay as they are."""
        async with self._apart_without_key(record):
            await self._put_aside(record, error)

    async def _put_aside(self, record: Record, error: Exception) -> None:
        reason = DeadLetter(f"unforeseen_{type(error).__name__}")
        try:
            delivery = await self._open(record)
        except DeadLetter:
            await self._bury_nameless(record, reason)
            return
        source, split = await self._known_source(delivery)
        left = await self._left(delivery, split=split)
        items = _items(delivery, split=split) if left is None else left
        if left is None and not items:
            row = delivery.entry("dead", None, source)
            await self._items.bury(row, delivery, reason, attempts=self._attempts, item=None)
        for item in items:
            row = delivery.entry("dead", None, source, item=item.index, size=len(item.raw))
            # Where some have a row already, those tell how many there are.
            row = replace(row, items=len(items) if left is None else 1)
            number = item.index if item.sliced else None
            await self._items.bury(row, delivery, reason, attempts=self._attempts, item=number)

    async def _open(self, record: Record) -> Delivery:
        """The delivery under the receipt that the ledger knows it by: one id has one, whenever its copies came.

        Copies have one lane, so the first of them is decided when the next one looks.
        """
        delivery = self._opened.open(record)
        if not delivery.doubtful:
            return delivery
        known = await self._receipts.ask(delivery.envelope.id)
        return delivery if known in (None, delivery.received_at) else self._opened.receive_at(record, known)

    async def _read_receipts(self, ids: Sequence[UUID]) -> Mapping[UUID, datetime | None]:
        async with self._database.transaction() as conn:
            found = await decisions.receipts(conn, ids)
        return {delivery_id: found.get(delivery_id) for delivery_id in ids}

    async def _bury_nameless(self, record: Record, error: DeadLetter) -> None:
        delivery = nameless(record)
        await self._items.bury(delivery.entry("dead", None, None), delivery, error, attempts=1, item=None)

    async def _judged(self, delivery: Delivery) -> tuple[Source | None, Opened | None, Accepted | Stop]:
        """The request's part of the cascade. A no that outdated configuration may cause is looked at again."""
        found = await self._sources.find(delivery.envelope.token_sha256)
        opened, verdict = self._judge(found.source, delivery)
        if isinstance(verdict, Stop) and verdict.outcome in RECHECKED and found.read_at <= delivery.settled_at_s:
            found = await self._sources.find(delivery.envelope.token_sha256, since=delivery.settled_at_s)
            opened, verdict = self._judge(found.source, delivery)
        return found.source, opened, verdict

    def _judge(self, source: Source | None, delivery: Delivery) -> tuple[Opened | None, Accepted | Stop]:
        stop = check_source(source, delivery.received_at, replayed=delivery.replayed)
        if stop is not None or source is None:
            return None, stop or Stop("unknown_token")
        opened = self._secrets.open(source, delivery.envelope.token_sha256, delivery.envelope.query)
        if isinstance(opened, Stop):
            return None, opened
        verdict = judge(
            delivery.request(),
            source.source_type,
            opened.config.secrets,
            split=splits(source.source_type, opened.config.split),
            uri=opened.uri,
            check=opened.config.verify,
        )
        return opened, verdict

    async def _stop(self, delivery: Delivery, source: Source | None, opened: Opened | None, stop: Stop) -> None:
        """Record where the request ended: one row, or one for each item left of a delivery that was half decided."""
        left: Sequence[Item] | None = None
        if source is not None and not surely_one_item(delivery.body, delivery.envelope.http):
            split = splits(source.source_type, None if opened is None else opened.config.split)
            left = await self._left(delivery, split=split)
        if left is None:
            await self._items.record(delivery.stopped(stop, source))
            return
        for item in left:
            await self._items.record(delivery.stopped(stop, source, item=item.index, size=len(item.raw)))

    async def _left(self, delivery: Delivery, *, split: bool) -> Sequence[Item] | None:
        """The items without a row; None when no item has one."""
        decided = await self._decided.ask(delivery.key)
        if not decided:
            return None
        return [item for item in _items(delivery, split=split) if item.index not in decided]

    async def _read_decided(self, keys: Sequence[decisions.Key]) -> Mapping[decisions.Key, set[int]]:
        crash_point("matcher.before_decided")
        async with self._database.transaction() as conn:
            found = await decisions.decided(conn, keys)
        crash_point("matcher.after_decided")
        return {key: found.get(key[1], set()) for key in keys}

    async def _each(self, subjects: Sequence[Subject]) -> None:
        """Decide all, a few at a time. One that fails keeps none of the others from its outcome."""
        if len(subjects) == 1:
            await self._items.decide(subjects[0])
            return
        slots = asyncio.Semaphore(ITEMS_AT_ONCE)

        async def one(subject: Subject) -> None:
            async with slots:
                await self._items.decide(subject)

        errors = await asyncio.gather(*(one(subject) for subject in subjects), return_exceptions=True)
        _raise_worst(error for error in errors if error is not None)

    async def _known_source(self, delivery: Delivery) -> tuple[Source | None, bool]:
        """The source of a poisoned record as far as it can be told, and whether its arrays are split."""
        try:
            source, opened, _ = await self._judged(delivery)
        except DependencyUnavailable:
            raise
        except Exception as error:
            log.warning("a poisoned record has no source", error=type(error).__name__)
            return None, False
        if source is None:
            return None, False
        return source, splits(source.source_type, None if opened is None else opened.config.split)


def _items(delivery: Delivery, *, split: bool) -> Sequence[Item]:
    envelope = delivery.envelope
    decoded = decode_payload(delivery.body, envelope.content_type, envelope.http, split=split)
    return _meant(delivery, decoded.items) if isinstance(decoded, Decoded) else ()


def _meant(delivery: Delivery, items: Sequence[Item]) -> Sequence[Item]:
    """Those that are to be decided: all, unless one of them was sent again alone."""
    wanted = delivery.envelope.item
    return items if wanted is None else [item for item in items if item.index == wanted]


def _body_ttl(opened: Opened | None) -> int:
    seconds = None if opened is None else opened.config.dedup_seconds
    return BODY_TTL_S if seconds is None else seconds


def _raise_worst(errors: Iterable[BaseException]) -> None:
    """A dependency that is away goes first: it spends no attempt, and the record is met again in any case."""
    found = list(errors)
    for error in found:
        if isinstance(error, DependencyUnavailable):
            raise error
    for error in found:
        raise error
