"""What tests of outbound stand on: rooms with messages, the rows, and the service's settings in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from aiokafka import AIOKafkaConsumer
from psycopg.rows import dict_row

from room_common.contracts.channel_config import ChannelConfig
from room_common.contracts.messages import OutboundMessage
from room_common.contracts.topics import OUTBOUND_DEAD
from room_common.identity import new_id
from room_common.postgres import outbox
from room_testing.matching import ENCRYPTION_KEYS, eventually
from room_testing.running import Running, SeededRoom
from room_testing.scheduling import seal_config

QUICK: Final[Mapping[str, str]] = {"ROOM_OUTBOUND__POLL_SECONDS": "0.2", "ROOM_OUTBOUND__LEASE_SECONDS": "15"}


class Sending(Running):
    """A database, and with a bootstrap address a broker, for outbound."""

    def outbound_environment(self, inbox_url: str, **more: str) -> Mapping[str, str]:
        """The settings of outbound for this world."""
        return {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(self.idempotence).lower(),
            "ROOM_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "ROOM_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "ROOM_DATABASE__DSN": self.dsn,
            "ROOM_ENCRYPTION__KEYS": ENCRYPTION_KEYS,
            "ROOM_OUTBOUND__LOCAL_INBOX_URL": inbox_url,
            **QUICK,
            **more,
        }

    async def once_only(self, room: SeededRoom, channel: str = "local") -> None:
        """Messages of this room's channel are never sent twice."""
        await self.query(
            "insert into instance_channels (id, instance_id, channel_type, delivery)"
            " values (%s, %s, %s, 'at_most_once')",
            new_id(),
            room.instance_id,
            channel,
        )

    async def channel(self, room: SeededRoom, config: ChannelConfig) -> UUID:
        """A channel with credentials; returns its id."""
        channel_id = new_id()
        await self.query(
            "insert into instance_channels (id, instance_id, channel_type, config) values (%s, %s, %s, %s)",
            channel_id,
            room.instance_id,
            config.type,
            seal_config(channel_id, config),
        )
        return channel_id

    async def message(
        self,
        room: SeededRoom,
        text: str = "Hello.",
        *,
        target: str = "me",
        channel: str = "local",
        status: str = "published",
    ) -> UUID:
        """A message behind the earlier ones of its target."""
        async with await psycopg.AsyncConnection.connect(self.dsn, row_factory=dict_row) as conn:
            message_id = await outbox.enqueue(conn, room.instance_id, channel, target, text)
            await conn.execute("update outbound_messages set status = %s where id = %s", (status, message_id))
        return message_id

    async def row(self, message_id: UUID) -> dict[str, Any]:
        """One message."""
        (row,) = await self.query("select * from outbound_messages where id = %s", message_id)
        return row

    async def becomes(self, message_id: UUID, status: str, seconds: float = 60.0) -> dict[str, Any]:
        """Its row, once it has this status."""

        async def reached() -> dict[str, Any] | None:
            row = await self.row(message_id)
            return row if row["status"] == status else None

        return await eventually(reached, f"status {status}", seconds)

    async def hurry(self, message_id: UUID) -> None:
        """Let the wait for the next try be over, and a lease too."""
        await self.query(
            "update outbound_messages set next_attempt_at = now() where id = %s and next_attempt_at > now()", message_id
        )

    async def cut_off(self, message_id: UUID) -> None:
        """As if the process that was sending had died long ago."""
        await self.query(
            "update outbound_messages set lease_until = now() - interval '1 second'"
            " where id = %s and status = 'sending'",
            message_id,
        )

    async def record(self, message_id: UUID) -> OutboundMessage:
        """The record that room-runner writes for a row."""
        row = await self.row(message_id)
        names = ("id", "instance_id", "cycle_id", "channel", "target", "text")
        return OutboundMessage(**{name: row[name] for name in names}, created_at=datetime.now(UTC))

    async def dead(self, message_id: UUID, seconds: float = 30.0) -> list[dict[str, bytes]]:
        """Headers of this message's dead letters."""
        consumer = AIOKafkaConsumer(
            OUTBOUND_DEAD, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        found = []
        try:
            async with asyncio.timeout(seconds):
                ends = await consumer.end_offsets(consumer.assignment())
                for partition, end in ends.items():
                    while await consumer.position(partition) < end:
                        for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                            found += [
                                r for r in records if OutboundMessage.model_validate_json(r.value).id == message_id
                            ]
        finally:
            await consumer.stop()
        return [dict(record.headers) for record in found]
