"""What tests of the scheduler stand on: rooms with channels, replies as ingest writes them, ticks that were sent."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from aiokafka import AIOKafkaConsumer, TopicPartition

from room_common.contracts.channel_config import CONFIG_COLUMN, CONFIG_TABLE, ChannelConfig, encode_channel_config
from room_common.contracts.envelope import Envelope, Outcome, encode
from room_common.contracts.messages import TickCommand
from room_common.contracts.source_config import TOKEN_COLUMN, TOKEN_TABLE
from room_common.contracts.topics import REPLIES_DEAD, REPLIES_RAW, TICKS
from room_common.crypto import Keyring
from room_common.domain.tokens import make_token, parse_token_keys, token_digest
from room_common.identity import new_id
from room_common.kafka.records import Record
from room_testing.matching import ENCRYPTION_KEYS, PUBLIC_URL, TOKEN_KEYS, eventually
from room_testing.running import Running, SeededRoom

KEYRING: Final = Keyring.parse(ENCRYPTION_KEYS)


def seal_config(channel_id: UUID, config: ChannelConfig) -> bytes:
    """A channel's config as admin stores it."""
    return KEYRING.encrypt(
        encode_channel_config(config), table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(channel_id)
    )


@dataclass(frozen=True, slots=True)
class SeededChannel:
    """A channel of a room, with the token of the URL that takes its replies."""

    id: UUID
    room: SeededRoom
    type: str
    token: str

    @property
    def digest(self) -> bytes:
        return token_digest(self.token)

    @property
    def uri(self) -> str:
        return f"{PUBLIC_URL}/channels/{self.type}/{self.token}"


class Scheduling(Running):
    """A database, and with a bootstrap address a broker, for the scheduler."""

    def __init__(self, dsn: str, bootstrap: str = "", *, idempotence: bool = False) -> None:
        super().__init__(dsn, bootstrap, idempotence=idempotence)
        self._tick_start: dict[TopicPartition, int] = {}

    def scheduler_environment(self, **more: str) -> Mapping[str, str]:
        """The settings of the scheduler for this world."""
        return {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(self.idempotence).lower(),
            "ROOM_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "ROOM_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "ROOM_DATABASE__DSN": self.dsn,
            "ROOM_ENCRYPTION__KEYS": ENCRYPTION_KEYS,
            "ROOM_PUBLIC_URL": PUBLIC_URL,
            "ROOM_SCHEDULER__TICK_SECONDS": "1",
            **more,
        }

    async def channel(
        self, room: SeededRoom, kind: str = "local", *, enabled: bool = True, config: ChannelConfig | None = None
    ) -> SeededChannel:
        """A channel and its URL's token."""
        token = make_token(parse_token_keys(TOKEN_KEYS), os.urandom(24))
        channel = SeededChannel(new_id(), room, kind, token)
        await self.query(
            "insert into instance_channels (id, instance_id, channel_type, enabled, config)"
            " values (%s, %s, %s, %s, %s)",
            channel.id,
            room.instance_id,
            kind,
            enabled,
            config and seal_config(channel.id, config),
        )
        sealed = KEYRING.encrypt(token.encode(), table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id=channel.digest.hex())
        await self.query(
            "insert into source_tokens (token_sha256, channel_id, token_encrypted) values (%s, %s, %s)",
            channel.digest,
            channel.id,
            sealed,
        )
        return channel

    def reply_record(
        self,
        channel: SeededChannel | bytes,
        body: bytes | Mapping[str, object],
        *,
        http: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        outcome: Outcome = "ok",
        delivery_id: UUID | None = None,
        age: float = 0.0,
        offset: int = 0,
    ) -> Record:
        """The record that ingest writes for a reply. ``channel`` may be the digest of a token that is nobody's."""
        digest = channel if isinstance(channel, bytes) else channel.digest
        envelope = Envelope(
            id=delivery_id or new_id(),
            token_sha256=digest,
            received_at_us=int((time.time() - age) * 1e6),
            content_type=content_type,
            http=http or {},
            outcome=outcome,
            channel=None if isinstance(channel, bytes) else channel.type,
        )
        value = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Record(REPLIES_RAW, 0, offset, 0, digest.hex().encode(), value, encode(envelope))

    async def send(self, *records: Record) -> None:
        """Write records to the topic of replies."""
        assert self._producer is not None
        for record in records:
            await self._producer.send_and_wait(record.topic, record.value, key=record.key, headers=list(record.headers))

    async def inbox(self, room: SeededRoom) -> list[dict[str, Any]]:
        """The replies of a room, in the order in which they were recorded."""
        return await self.query("select * from room_inbox where instance_id = %s order by id", room.instance_id)

    async def arrived(self, room: SeededRoom, count: int = 1) -> list[dict[str, Any]]:
        """The same, once there are ``count``."""

        async def enough() -> list[dict[str, Any]] | None:
            rows = await self.inbox(room)
            return rows if len(rows) >= count else None

        return await eventually(enough, f"{count} replies")

    async def wait_until_wake(self, room: SeededRoom) -> float | None:
        """Seconds until the room is claimable, None while it sleeps."""
        (row,) = await self.query(
            "select extract(epoch from wake_at - now())::float8 as wait from instance_room where instance_id = %s",
            room.instance_id,
        )
        return None if row["wait"] is None else float(row["wait"])

    async def mark(self) -> None:
        """Count ticks from here."""
        consumer = AIOKafkaConsumer(TICKS, bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            self._tick_start = await consumer.end_offsets(consumer.assignment())
        finally:
            await consumer.stop()

    async def ticks(self, room: SeededRoom | None = None) -> list[TickCommand]:
        """Every tick since the last :meth:`mark`, or those of one room."""
        commands = [TickCommand.model_validate_json(value) for value in await self._values(TICKS, self._tick_start)]
        return [one for one in commands if room is None or one.instance_id == room.instance_id]

    async def dead_replies(self, channel: SeededChannel | bytes) -> list[dict[str, bytes]]:
        """Headers of the dead letters of one channel token."""
        digest = channel if isinstance(channel, bytes) else channel.digest
        found = [dict(record.headers) for record in await self._records(REPLIES_DEAD, {})]
        return [headers for headers in found if headers.get("token_sha256") == digest.hex().encode()]

    async def _values(self, topic: str, start: Mapping[TopicPartition, int]) -> list[bytes]:
        return [record.value for record in await self._records(topic, start)]

    async def _records(self, topic: str, start: Mapping[TopicPartition, int]) -> list[Any]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        found: list[Any] = []
        try:
            async with asyncio.timeout(60):
                ends = await consumer.end_offsets(consumer.assignment())
                for partition, end in ends.items():
                    if partition in start:
                        consumer.seek(partition, start[partition])
                    while await consumer.position(partition) < end:
                        for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                            found += records
        finally:
            await consumer.stop()
        return found
