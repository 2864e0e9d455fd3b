"""The conservation law (design, P2): each delivery that its consumer group has passed has its rows in the ledger.

A record behind the committed offset of its group was either decided, one row for each item, or moved to the slow lane:
then it is there, not yet passed by the slow lane's group. Anything else is missing, and is named. Deliveries that still
wait, in either topic or in the overflow table, are no matter of this law.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from room_common.contracts import envelope as envelopes
from room_common.contracts.topics import MATCHER_GROUP, MATCHER_SLOW_GROUP, WEBHOOKS_RAW, WEBHOOKS_SLOW
from room_common.errors import DeadLetter
from room_common.kafka.audited import AuditedTopic, Offsets, audited
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings
from room_common.postgres import conservation
from room_common.postgres.database import Database

SUSPECTS: Final = 20_000
"""Deliveries without their rows that are held at once, until the slow lane has been looked through for them."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A delivery without its rows. ``items``: those that lack one, None where all do. ``written_at``: in the topic."""

    id: UUID
    topic: str
    partition: int
    offset: int
    written_at: datetime
    items: tuple[int, ...] | None


class Reconciler:
    """Compares, from where the last comparison ended, or at first from a time on. Not for two callers at once."""

    def __init__(
        self, database: Database, raw: AuditedTopic, slow: AuditedTopic, since_ms: int, *, suspects: int = SUSPECTS
    ) -> None:
        self._database = database
        self._raw = raw
        self._slow = slow
        self._since_ms = since_ms
        self._most = suspects
        self._next: dict[str, dict[int, int]] = {}
        self.checked = {raw.topic: 0, slow.topic: 0}
        """Records that were compared, by topic."""

    async def compare(self) -> AsyncIterator[Missing]:
        """What is missing among the deliveries passed since the last time. Raises ``DependencyUnavailable``; what was
        not compared then is compared the next time.

        The slow lane's commit is asked for before anything else: what it passes meanwhile still counts as waiting
        there, and is compared later.
        """
        passed_slow = await self._slow.committed()
        passed_raw = await self._raw.committed()
        for topic, passed in ((self._raw, passed_raw), (self._slow, passed_slow)):
            starts = await self._starts(topic, passed)
            suspects: dict[UUID, Missing] = {}
            async with aclosing(topic.read(starts, passed)) as batches:
                async for records in batches:
                    self.checked[topic.topic] += len(records)
                    suspects |= await self._undecided(records)
                    if len(suspects) >= self._most:
                        for missing in await self._without_waiting(suspects, passed_slow):
                            yield missing
                        suspects = {}
            for missing in await self._without_waiting(suspects, passed_slow):
                yield missing
            for partition, offset in passed.items():
                starts[partition] = max(offset, starts.get(partition, offset))

    async def still_missing(self, known: Sequence[Missing]) -> list[Missing]:
        """Those of ``known`` that have got no rows since and don't wait in the slow lane."""
        passed_slow = await self._slow.committed()
        left: dict[UUID, Missing] = {}
        for at in range(0, len(known), 500):
            some = {missing.id: missing for missing in known[at : at + 500]}
            async with self._database.transaction() as conn:
                undecided = await conservation.undecided_items(conn, list(some))
            left |= {one: some[one] for one in undecided}
        return await self._without_waiting(left, passed_slow)

    async def _starts(self, topic: AuditedTopic, passed: Offsets) -> dict[int, int]:
        if topic.topic not in self._next:
            young = {**await topic.ends(), **await topic.since(self._since_ms)}
            # What is older and still waits is compared when it is passed.
            first = {**await topic.beginnings(), **passed}
            self._next[topic.topic] = {partition: min(start, first[partition]) for partition, start in young.items()}
        return self._next[topic.topic]

    async def _undecided(self, records: Sequence[Record]) -> dict[UUID, Missing]:
        places = {_id_of(record): record for record in records}
        if not places:
            return {}
        async with self._database.transaction() as conn:
            undecided = await conservation.undecided_items(conn, list(places))
        return {
            one: Missing(
                id=one,
                topic=places[one].topic,
                partition=places[one].partition,
                offset=places[one].offset,
                written_at=datetime.fromtimestamp(max(0, places[one].timestamp_ms) / 1000, UTC),
                items=items,
            )
            for one, items in undecided.items()
        }

    async def _without_waiting(self, suspects: dict[UUID, Missing], passed: Offsets) -> list[Missing]:
        left = dict(suspects)
        if left:
            starts = {**await self._slow.beginnings(), **passed}
            async with aclosing(self._slow.read(starts, await self._slow.ends())) as batches:
                async for records in batches:
                    for record in records:
                        left.pop(_id_of(record), None)
        return list(left.values())


@asynccontextmanager
async def reconciler(settings: KafkaSettings, database: Database, since: datetime) -> AsyncIterator[Reconciler]:
    """A reconciler of what was written to the topics from ``since`` on. Raises ``DependencyUnavailable``."""
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(audited(settings, WEBHOOKS_RAW, MATCHER_GROUP))
        slow = await stack.enter_async_context(audited(settings, WEBHOOKS_SLOW, MATCHER_SLOW_GROUP))
        yield Reconciler(database, raw, slow, round(since.timestamp() * 1000))


def _id_of(record: Record) -> UUID:
    try:
        return envelopes.decode(record).id
    except DeadLetter:
        return envelopes.id_by_place(record)
