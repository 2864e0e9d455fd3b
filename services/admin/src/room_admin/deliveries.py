"""Deliveries read back from Kafka: what was received, and sending it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from uuid import UUID

from room_admin.apply import open_config
from room_admin.problems import Problem
from room_common.contracts import envelope as envelopes
from room_common.contracts.envelope import Envelope
from room_common.contracts.topics import WEBHOOKS_DEAD, WEBHOOKS_RAW
from room_common.crypto import Keyring, UnknownKey
from room_common.domain.batching import splits
from room_common.domain.decoding import Decoded, Undecodable, decode_payload
from room_common.errors import DeadLetter, Refused
from room_common.identity import new_id
from room_common.kafka.producer import RecordMetadata
from room_common.kafka.reader import Place
from room_common.kafka.records import Headers, Record
from room_common.postgres import access, deliveries
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

GONE: Final = "the record is not in Kafka any more: it has expired, or the topic was made again"

NEEDS_FORCE: Final = {
    "bad_signature": "nobody knows who sent it",
    "unknown_token": "its URL belonged to nothing",
}
"""Outcomes that are sent again only on purpose, and why."""

_CLOCKS_APART_MS: Final = 15 * 60 * 1000


class Records(Protocol):
    """Where records are read: :class:`room_common.kafka.reader.Reader`."""

    async def read(self, place: Place) -> Record | None: ...

    async def read_many(self, places: Iterable[Place]) -> dict[Place, Record]: ...

    async def find(self, topic: str, matches: Callable[[Record], bool], *, since_ms: int) -> Record | None: ...


class Sender(Protocol):
    """Where records are sent: :class:`room_common.kafka.producer.Producer`."""

    async def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> RecordMetadata: ...


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery as it was received. ``envelope`` is None when it can't be read."""

    record: Record = field(repr=False)
    envelope: Envelope | None = field(repr=False)

    @property
    def body(self) -> bytes:
        """The request body, byte for byte."""
        return self.record.value or b""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Where the new copy is."""

    id: UUID
    place: Place


def place_of(row: Mapping[str, Any]) -> Place:
    """Where the ledger says that the record is."""
    return Place(row["topic"], row["partition"], row["offset"])


def received(record: Record | None, delivery_id: UUID, outcome: str | None = None) -> Received | None:
    """The delivery in a record, None when the record is another one.

    An envelope that can't be read has no id to compare; only a delivery that died of it is taken to be in its place.
    """
    if record is None:
        return None
    try:
        envelope = envelopes.decode(record)
    except DeadLetter as error:
        return Received(record, None) if outcome == str(error) else None
    return Received(record, envelope) if envelope.id == delivery_id else None


class Deliveries:
    """Finds the record of a delivery, by its place in the ledger or in the dead-letter topic by its id."""

    def __init__(self, database: Database, keyring: Keyring, records: Records, sender: Sender) -> None:
        self._database = database
        self._keyring = keyring
        self._records = records
        self._sender = sender

    async def items(self, delivery_id: UUID) -> Sequence[Mapping[str, Any]]:
        """The ledger's rows of a delivery."""
        async with self._database.transaction() as conn:
            return await deliveries.items(conn, delivery_id)

    async def read(self, delivery_id: UUID, rows: Sequence[Mapping[str, Any]]) -> Received:
        """What was received. Raises ``Problem`` 410 (404 for a delivery of which nothing is known any more)."""
        for row in rows[:1]:
            reason = row["reason"] if row["outcome"] == "dead" else None
            found = received(await self._records.read(place_of(row)), delivery_id, reason)
            if found is not None:
                return found
        if not rows or any(row["outcome"] == "dead" for row in rows):
            found = await self._among_the_dead(delivery_id)
            if found is not None:
                return found
        if not rows:
            raise Problem(404, "there is no such delivery, or it has not been decided yet")
        raise Problem(410, GONE)

    async def read_many(self, rows: Sequence[Mapping[str, Any]]) -> dict[UUID, Received]:
        """What was received, by delivery; those that are not there any more are missing."""
        records = await self._records.read_many({place_of(row) for row in rows})
        found = {}
        for row in rows:
            one = received(records.get(place_of(row)), row["id"])
            if one is not None:
                found[row["id"]] = one
        return found

    def decode(self, found: Received, row: Mapping[str, Any] | None) -> Decoded | Undecodable | None:
        """The items of a delivery, as its source is configured now; None where no envelope says what they are."""
        if found.envelope is None:
            return None
        split = row is not None and self._splits(row)
        return decode_payload(found.body, found.envelope.content_type, found.envelope.http, split=split)

    async def replay(self, delivery_id: UUID, caller: Caller, *, force: bool, item: int | None) -> Replayed:
        """Publish a delivery once more, under a new id. Audited before it is published.

        Raises ``Problem``: 404, 409 when it can't be of use or needs force, 410 when it is gone; and
        ``DependencyUnavailable``: it may have been published all the same.
        """
        rows = await self.items(delivery_id)
        meant = [row for row in rows if item is None or row["item"] == item]
        if rows and not meant:
            raise Problem(404, f"the delivery has no item {item}")
        for row in meant:
            if row["outcome"] == "too_large":
                raise Problem(409, "it was too large: no body was kept that could be sent again")
            if row["outcome"] in NEEDS_FORCE and not force:
                raise Problem(
                    409, f"{row['outcome']}: {NEEDS_FORCE[row['outcome']]}; send it again with force if you do"
                )
        found = await self.read(delivery_id, rows)
        if found.envelope is None:
            raise Problem(409, "its envelope can't be read, so it would die again")
        async with self._database.transaction() as conn:
            now_us = await deliveries.receipt_time(conn)
            copy = replace(
                found.envelope,
                id=new_id(),
                received_at_us=now_us,
                replay_of=delivery_id,
                forced=force,
                item=found.envelope.item if item is None else item,
            )
            await access.audit(
                conn,
                caller.name,
                "replay_delivery",
                instance_id=rows[0]["instance_id"] if rows else None,
                subject=str(delivery_id),
                detail={"id": str(copy.id), "force": force} | ({} if item is None else {"item": item}),
            )
        sent = await self._sender.send(
            WEBHOOKS_RAW, key=found.record.key, value=found.record.value, headers=envelopes.encode(copy)
        )
        return Replayed(copy.id, Place(sent.topic, sent.partition, sent.offset))

    def _splits(self, row: Mapping[str, Any]) -> bool:
        if row["source_type"] is None:
            return False
        try:
            switch = open_config(self._keyring, {**row, "id": row["source_id"]}).split
        except (Refused, UnknownKey):
            switch = None
        return splits(row["source_type"], switch)

    async def _among_the_dead(self, delivery_id: UUID) -> Received | None:
        """Dead letters are kept longer than the ledger; an id tells the time from which on to look."""
        if delivery_id.version != 7:
            return None
        wanted = str(delivery_id).encode()
        record = await self._records.find(
            WEBHOOKS_DEAD,
            lambda record: (envelopes.ID, wanted) in record.headers,
            since_ms=(delivery_id.int >> 80) - _CLOCKS_APART_MS,
        )
        return received(record, delivery_id)
