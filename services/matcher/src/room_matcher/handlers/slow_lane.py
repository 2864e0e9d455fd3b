"""The slow lane: records that would stand in front of others go on in a topic of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import structlog

from room_common.contracts.envelope import RECEIVED_AT
from room_common.contracts.topics import WEBHOOKS_SLOW
from room_common.errors import DeadLetter
from room_common.faults import crash_point
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.kafka.records import Headers, Record
from room_matcher.domain.cascade import microseconds
from room_matcher.handlers.delivery import Delivery
from room_matcher.handlers.opened import OpenedRecords
from room_matcher.metrics import MatcherMetrics

Why = Literal["share", "key"]

log = structlog.get_logger(__name__)


class SlowLane:
    """Publishes records to ``room.webhooks.slow`` as they are and waits for the acknowledgement.

    Their receipt is the one the ledger knows them by, so that a record that is met in both topics is one delivery.
    """

    def __init__(self, producer: Producer, opened: OpenedRecords, metrics: MatcherMetrics) -> None:
        self._producer = producer
        self._opened = opened
        self._metrics = metrics

    def applies_to(self, record: Record) -> bool:
        """Whether this record is not in the slow lane already."""
        return record.topic != WEBHOOKS_SLOW

    async def take_excess(self, records: Sequence[Record]) -> None:
        """The records of sources that have their share of the buffer. Raises ``DependencyUnavailable``."""
        await self.take(records, "share")

    async def take(self, records: Sequence[Record], why: Why) -> None:
        """Republish all of ``records``. Raises ``DependencyUnavailable``: some may be there, none is lost."""
        crash_point("matcher.before_slow_publish")
        results = await self._producer.send_many(
            [Outgoing(WEBHOOKS_SLOW, record.key, record.value, self._headers(record)) for record in records]
        )
        for result in results:
            if not isinstance(result, RecordMetadata):
                raise result
        crash_point("matcher.after_slow_publish")
        self._metrics.diverted(why, len(records))
        for record in records:
            self._opened.forget(record)

    def _headers(self, record: Record) -> Headers:
        try:
            delivery: Delivery = self._opened.open(record)
        except DeadLetter:
            return record.headers
        received = b"%d" % microseconds(delivery.received_at)
        return tuple((name, received if name == RECEIVED_AT else value) for name, value in record.headers)
