"""Dead letters of messages that failed for good.

The row says that a message failed, and that is final; the letter is for whoever reads the topic. It is written from the
row, so a Kafka that is away delays the letter and nothing else. A crash in between writes a letter twice.
"""

from __future__ import annotations

import logging
from typing import Final

from prometheus_client import CollectorRegistry

from room_common.contracts import envelope, topics
from room_common.contracts.messages import OutboundMessage
from room_common.errors import DeadLetter
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.postgres import sending
from room_common.postgres.database import Database
from room_common.postgres.sending import Unburied
from room_common.telemetry.metrics import DEAD_LETTERS, counter
from room_common.telemetry.tracing import trace_headers

_log = logging.getLogger(__name__)
_SECONDS: Final = 5.0
_PAGE: Final = 50


class DeadLetters:
    """Writes what is missing on ``room.outbound.dead``."""

    def __init__(self, database: Database, producer: Producer, registry: CollectorRegistry) -> None:
        self._database = database
        self._producer = producer
        # Why each failed is the provider's matter, in as many ways as there are: the row and the letter tell.
        self._letters = counter(registry, DEAD_LETTERS).labels(topics.OUTBOUND_DEAD, "failed")

    async def write(self) -> int:
        """Write a page of missing letters; returns how many. Raises ``DependencyUnavailable`` for PostgreSQL only."""
        async with self._database.transaction() as conn:
            rows = await sending.unburied(conn, _PAGE)
            if not rows:
                return 0
            results = await self._producer.send_many([_letter(row) for row in rows], timeout=_SECONDS)
            done = [
                row.id
                for row, result in zip(rows, results, strict=True)
                # One that is too large for a record never gets a letter: the row alone shows it.
                if isinstance(result, RecordMetadata | DeadLetter)
            ]
            await sending.mark_buried(conn, done)
        self._letters.inc(len(done))
        if len(done) < len(rows):
            _log.warning("dead letters wait for Kafka", extra={"count": len(rows) - len(done)})
        return len(done)


def _letter(row: Unburied) -> Outgoing:
    message = OutboundMessage(
        id=row.id,
        instance_id=row.instance_id,
        cycle_id=row.cycle_id,
        channel=row.channel,
        target=row.target,
        text=row.text,
        created_at=row.created_at,
    )
    return Outgoing(
        topics.OUTBOUND_DEAD,
        key=message.record_key,
        value=message.encode(),
        headers=(
            (envelope.ERROR, row.error.encode()),
            (envelope.ATTEMPTS, b"%d" % row.attempts),
            *trace_headers(row.traceparent),
        ),
    )
