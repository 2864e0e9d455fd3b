"""The dead-letter topic: deliveries that fail by their own fault."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from room_common.contracts.envelope import ITEM, dead_headers
from room_common.contracts.topics import WEBHOOKS_DEAD
from room_common.errors import DeadLetter
from room_common.faults import crash_point
from room_common.kafka.producer import Producer
from room_common.kafka.records import Headers, Record
from room_common.telemetry.metrics import DEAD_LETTERS, counter, dead_letter_reason

_REASONS: Final = (
    *("bad_envelope", "content_filter", "context_length", "invalid_request", "no_choices", "refused", "unforeseen"),
)


class DeadLetters:
    """Publishes to the dead-letter topic and waits for the acknowledgement."""

    def __init__(self, producer: Producer, registry: CollectorRegistry) -> None:
        self._producer = producer
        self._letters = counter(registry, DEAD_LETTERS)
        for reason in _REASONS:
            self._letters.labels(WEBHOOKS_DEAD, reason)

    async def publish(self, record: Record, error: DeadLetter, *, attempts: int, item: int | None = None) -> None:
        """Publish ``record`` with why it died; ``item`` says which of its items did. Raises ``DependencyUnavailable``.

        A record too large to be published again goes without its body; the origin in its headers tells where that is.
        """
        crash_point("matcher.before_dead_publish")
        headers = dead_headers(record, error, attempts)
        if item is not None:
            headers = (*headers, (ITEM, b"%d" % item))
        try:
            await self._send(record, record.value, headers)
        except DeadLetter:
            await self._send(record, b"", headers)
        self._letters.labels(WEBHOOKS_DEAD, dead_letter_reason(error.kind)).inc()
        crash_point("matcher.after_dead_publish")

    async def _send(self, record: Record, value: bytes | None, headers: Headers) -> None:
        await self._producer.send(WEBHOOKS_DEAD, key=record.key, value=value, headers=headers)
