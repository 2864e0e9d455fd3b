"""A stand-in for Kafka where only reading by place and sending matter: records in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from room_common.contracts.envelope import Envelope, encode
from room_common.errors import DependencyUnavailable
from room_common.kafka.producer import RecordMetadata
from room_common.kafka.reader import Place
from room_common.kafka.records import Headers, Record


@dataclass(slots=True)
class KeptRecords:
    """What :class:`room_admin.deliveries.Records` and ``Sender`` ask for. ``away``: nothing answers."""

    kept: dict[Place, Record] = field(default_factory=dict)
    sent: list[Record] = field(default_factory=list)
    away: bool = False

    def keep(
        self,
        delivery_id: UUID,
        body: bytes = b'{"a": "private"}',
        *,
        topic: str = "t",
        offset: int = 0,
        http: Mapping[str, str] | None = None,
        more: Headers = (),
    ) -> Place:
        """Put a webhook's record into its place."""
        envelope = Envelope(
            id=delivery_id, token_sha256=bytes(32), received_at_us=1, content_type="application/json", http=http or {}
        )
        place = Place(topic, 0, offset)
        self.kept[place] = Record(topic, 0, offset, 0, b"key", body, (*encode(envelope), *more))
        return place

    async def read(self, place: Place) -> Record | None:
        """See :class:`room_common.kafka.reader.Reader`."""
        return (await self.read_many([place])).get(place)

    async def read_many(self, places: Iterable[Place]) -> dict[Place, Record]:
        """See :class:`room_common.kafka.reader.Reader`."""
        if self.away:
            raise DependencyUnavailable("kafka", "connect")
        return {place: self.kept[place] for place in places if place in self.kept}

    async def find(self, topic: str, matches: Callable[[Record], bool], *, since_ms: int) -> Record | None:
        """See :class:`room_common.kafka.reader.Reader`; records have no time here."""
        assert since_ms > 0
        return next((record for place, record in self.kept.items() if place.topic == topic and matches(record)), None)

    async def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> RecordMetadata:
        """See :class:`room_common.kafka.producer.Producer`."""
        if self.away:
            raise DependencyUnavailable("kafka", "timeout")
        self.sent.append(Record(topic, 3, len(self.sent), 0, key, value, tuple(headers)))
        return RecordMetadata(topic, 3, len(self.sent) - 1, 0)
