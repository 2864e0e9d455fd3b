"""A record of the raw topic, opened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from room_common.contracts import envelope as envelopes
from room_common.contracts.envelope import Envelope
from room_common.contracts.topics import WEBHOOKS_SLOW
from room_common.domain.deliveries import Outcome, Source
from room_common.kafka.records import Record
from room_common.postgres import decisions, ledger
from room_matcher.domain.cascade import SAME_MOMENT, Request, Stop, ledger_time, may_have_other_time, trace_id


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record with its envelope. ``received_at`` is the receipt as the ledger keys it."""

    record: Record
    envelope: Envelope
    received_at: datetime

    @property
    def body(self) -> bytes:
        """The request body, byte for byte."""
        return self.record.value or b""

    @property
    def key(self) -> decisions.Key:
        """What the ledger knows this delivery by."""
        return self.received_at, self.envelope.id

    @property
    def doubtful(self) -> bool:
        """Whether a copy of it may be in the ledger under another receipt."""
        return self.record.topic == WEBHOOKS_SLOW or may_have_other_time(
            self.envelope.received_at_us, self.record.timestamp_ms
        )

    @property
    def replayed(self) -> bool:
        """Whether an operator sent this delivery again."""
        return self.envelope.replay_of is not None

    @property
    def received_at_s(self) -> float:
        """The receipt in Unix seconds."""
        return self.received_at.timestamp()

    @property
    def settled_at_s(self) -> float:
        """Configuration that was read after this moment (Unix seconds) is newer than the record, clocks being right to
        a second. Reading it again tells nothing about the time when the record was sent."""
        appended = self.record.timestamp_ms
        return float("inf") if appended < 1 else appended / 1000 + SAME_MOMENT.total_seconds()

    def request(self) -> Request:
        """What the cascade judges."""
        return Request(
            body=self.body,
            content_type=self.envelope.content_type,
            headers=self.envelope.http,
            query=self.envelope.query,
            received_at_s=self.received_at_s,
            too_large=self.envelope.outcome == "too_large",
            replayed=self.replayed,
            forced=self.envelope.forced,
        )

    def entry(
        self, outcome: Outcome, reason: str | None, source: Source | None, *, item: int = 0, size: int | None = None
    ) -> ledger.Entry:
        """A row of the ledger for this delivery, or for one item of it."""
        return ledger.Entry(
            received_at=self.received_at,
            id=self.envelope.id,
            item=item,
            outcome=outcome,
            reason=reason,
            size=len(self.body) if size is None else size,
            topic=self.record.topic,
            partition=self.record.partition,
            offset=self.record.offset,
            source_id=None if source is None else source.id,
            instance_id=None if source is None else source.instance_id,
            trace_id=trace_id(self.envelope.traceparent),
            replay_of=self.envelope.replay_of,
        )

    def stopped(self, stop: Stop, source: Source | None, *, item: int = 0, size: int | None = None) -> ledger.Entry:
        """The row of a delivery (or item) that the cascade ended. A token that is not valid belongs to no source."""
        known = None if stop.outcome == "unknown_token" else source
        return self.entry(stop.outcome, stop.reason, known, item=item, size=size)


def open_record(record: Record) -> Delivery:
    """Read the envelope. Raises ``DeadLetter('bad_envelope')``."""
    envelope = envelopes.decode(record)
    return Delivery(record, envelope, ledger_time(envelope.received_at_us, record.timestamp_ms))


def nameless(record: Record) -> Delivery:
    """A record whose envelope can't be read, under an id that its place in the topic gives it."""
    envelope = Envelope(
        id=envelopes.id_by_place(record),
        token_sha256=bytes(32),
        received_at_us=max(record.timestamp_ms, 0) * 1000,
    )
    return Delivery(record, envelope, ledger_time(envelope.received_at_us, record.timestamp_ms))
