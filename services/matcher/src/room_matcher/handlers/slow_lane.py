"""The slow lane: records that would stand in front of others go on in a topic of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

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

Why = Literal["share", "key", "key_again"]

REST_SECONDS: Final = 60.0
"""So long a record of the slow lane that can't be handled stays where it is; longer the longer it has waited."""

WAITED_PARTS: Final = 60
"""One rest is at least one of so many parts of the time waited already: a key that nobody brings costs less."""

LONGEST_RESTS: Final = 10
"""And at most so many times the first one."""

log = structlog.get_logger(__name__)


class SlowLane:
    """Publishes records to ``room.webhooks.slow`` as they are and waits for the acknowledgement.

    Their receipt is the one the ledger knows them by, so that a record that is met in both topics is one delivery.
    """

    def __init__(
        self,
        producer: Producer,
        opened: OpenedRecords,
        metrics: MatcherMetrics,
        *,
        rest: float = REST_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._producer = producer
        self._opened = opened
        self._metrics = metrics
        self._rest = rest
        self._clock = clock
        self._ahead = 0.0
        """Seconds by which the broker's clock was ahead of ours at the last acknowledgement."""

    def rest(self, record: Record) -> float:
        """Seconds until a record that can't be handled may go to the end of the slow lane; 0: at once.

        A record that is there already stays for a while, so that those that wait do not go round without a pause.
        """
        if record.topic != WEBHOOKS_SLOW:
            return 0.0
        now = self._clock() + self._ahead
        rest = self._rest
        try:
            waited = now - self._opened.open(record).received_at_s
        except DeadLetter:
            pass
        else:
            rest = min(max(rest, waited / WAITED_PARTS), LONGEST_RESTS * rest)
        return rest - min(max(0.0, now - record.timestamp_ms / 1000), rest)

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
            if result.timestamp_ms > 0:
                self._ahead = result.timestamp_ms / 1000 - self._clock()
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
