"""What is put on the dead-letter topic is counted, by why it died."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from room_common.contracts.envelope import Envelope, encode
from room_common.contracts.topics import WEBHOOKS_DEAD, WEBHOOKS_RAW
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.records import Record
from room_matcher.handlers.dead_letters import DeadLetters

HEADERS = encode(Envelope(id=UUID(int=1), token_sha256=bytes(32), received_at_us=1))
RECORD = Record(WEBHOOKS_RAW, 0, 0, 1, b"key", b"{}", HEADERS)


class Sends:
    """A producer that fails with ``error``."""

    error: Exception | None = None

    async def send(self, *_: object, **__: object) -> None:
        if self.error is not None:
            raise self.error


async def test_each_is_counted_once_it_is_there() -> None:
    registry, sends = CollectorRegistry(), Sends()
    letters = DeadLetters(cast(Any, sends), registry)

    def counted(reason: str) -> float | None:
        return registry.get_sample_value("room_dead_letters_total", {"topic": WEBHOOKS_DEAD, "reason": reason})

    assert (counted("refused"), counted("unforeseen")) == (0, 0)
    await letters.publish(RECORD, DeadLetter("refused"), attempts=1)
    await letters.publish(RECORD, DeadLetter("unforeseen_KeyError"), attempts=3)
    sends.error = DependencyUnavailable("kafka", "connect")
    with pytest.raises(DependencyUnavailable):
        await letters.publish(RECORD, DeadLetter("refused"), attempts=1)
    assert (counted("refused"), counted("unforeseen"), counted("unforeseen_KeyError")) == (1, 1, None)
