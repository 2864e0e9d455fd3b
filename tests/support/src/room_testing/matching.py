"""What tests of the matcher stand on: seeded instances and sources, raw records as ingest writes them, the outcomes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from psycopg.rows import DictRow, dict_row

from room_common.contracts.envelope import Envelope, Outcome, encode
from room_common.contracts.source_config import CONFIG_COLUMN, CONFIG_TABLE, TOKEN_COLUMN, TOKEN_TABLE, SourceConfig
from room_common.contracts.topics import TOPICS, WEBHOOKS_DEAD, WEBHOOKS_RAW
from room_common.crypto import Keyring
from room_common.domain.tokens import make_token, parse_token_keys, record_key, token_digest
from room_common.identity import new_id
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings

T = TypeVar("T")

PUBLIC_URL: Final = "https://hooks.example.test"
ENCRYPTION_KEYS: Final = "e1:" + "11" * 32
TOKEN_KEYS: Final = "t1:" + "22" * 32


async def eventually(probe: Callable[[], Awaitable[T | None]], what: str, seconds: float = 120.0) -> T:
    """The first result of ``probe`` that is true. Raises ``TimeoutError`` that says ``what`` did not come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = await probe()
        if result:
            return result
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{what} did not come within {seconds:.0f} s")


@dataclass(frozen=True, slots=True)
class SeededSource:
    """A source with its URL's token."""

    id: UUID
    instance_id: UUID
    token: str
    definitions: tuple[UUID, ...]

    @property
    def digest(self) -> bytes:
        return token_digest(self.token)

    @property
    def uri(self) -> str:
        return f"{PUBLIC_URL}/webhooks/{self.token}"


class Matching:
    """A database to judge by and a broker to send through. Close it."""

    def __init__(self, dsn: str, bootstrap: str = "", *, idempotence: bool = False) -> None:
        self.dsn = dsn
        self.bootstrap = bootstrap
        self.idempotence = idempotence
        self.keyring = Keyring.parse(ENCRYPTION_KEYS)
        self._producer: AIOKafkaProducer | None = None

    def environment(self, llm_url: str, **more: str) -> Mapping[str, str]:
        """The matcher's settings for this world; it notices a killed predecessor soon."""
        return {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "ROOM_KAFKA__IDEMPOTENCE": str(self.idempotence).lower(),
            "ROOM_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "ROOM_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "ROOM_DATABASE__DSN": self.dsn,
            "ROOM_ENCRYPTION__KEYS": ENCRYPTION_KEYS,
            "ROOM_PUBLIC_URL": PUBLIC_URL,
            "ROOM_LLM__BASE_URL": llm_url,
            "ROOM_LLM__MAX_RETRIES": "0",
            "ROOM_MATCHER__PROBE_SECONDS": "0.5",
            **more,
        }

    async def open(self) -> None:
        """Make the topics."""
        settings = KafkaSettings(bootstrap_servers=self.bootstrap, replication_factor=1, min_insync_replicas=1)
        await create_topics(settings, TOPICS)
        self._producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await self._producer.start()

    async def close(self) -> None:
        """Let go of the broker."""
        if self._producer is not None:
            await self._producer.stop()

    async def connect(self) -> psycopg.AsyncConnection[DictRow]:
        """A connection as the services use them."""
        return await psycopg.AsyncConnection.connect(self.dsn, row_factory=dict_row)

    async def query(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        """Run one statement in its own transaction."""
        async with await self.connect() as conn:
            cursor = await conn.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def instance(self, *, enabled: bool = True, budget: int | None = 5_000_000) -> UUID:
        """An active instance with a room."""
        instance_id = new_id()
        await self.query(
            "insert into instances (id, slug, name, token_budget_daily) values (%s, %s, 'Desk', %s)",
            instance_id,
            f"desk-{instance_id.hex[-12:]}",
            budget,
        )
        await self.query("insert into instance_room (instance_id, enabled) values (%s, %s)", instance_id, enabled)
        return instance_id

    async def source(
        self,
        instance_id: UUID,
        source_type: str = "generic",
        *,
        secrets: Sequence[str] = (),
        criteria: Sequence[str] = ("anything",),
        enabled: bool = True,
        config: bytes | None = None,
    ) -> SeededSource:
        """A source with one definition per criterion, in that order. ``config`` replaces its ciphertext."""
        source_id = new_id()
        token = make_token(parse_token_keys(TOKEN_KEYS), os.urandom(24))
        digest = token_digest(token)
        sealed = config or self.keyring.encrypt(
            SourceConfig(secrets=tuple(secrets)).encode(),
            table=CONFIG_TABLE,
            column=CONFIG_COLUMN,
            row_id=str(source_id),
        )
        await self.query(
            "insert into event_sources (id, instance_id, name, source_type, config, enabled)"
            " values (%s, %s, %s, %s, %s, %s)",
            source_id,
            instance_id,
            f"source {source_id.hex[-6:]}",
            source_type,
            sealed,
            enabled,
        )
        sealed_token = self.keyring.encrypt(token.encode(), table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id=digest.hex())
        await self.query(
            "insert into source_tokens (token_sha256, source_id, token_encrypted) values (%s, %s, %s)",
            digest,
            source_id,
            sealed_token,
        )
        definitions = []
        for priority, criterion in enumerate(criteria):
            definitions.append(new_id())
            await self.query(
                "insert into event_definitions (id, event_source_id, name, priority, matching_prompt)"
                " values (%s, %s, %s, %s, %s)",
                definitions[-1],
                source_id,
                f"definition {priority}",
                priority,
                criterion,
            )
        return SeededSource(source_id, instance_id, token, tuple(definitions))

    async def send(
        self,
        source: SeededSource | bytes,
        body: bytes,
        *,
        http: Mapping[str, str] | None = None,
        content_type: str | None = "application/json",
        outcome: Outcome = "ok",
        delivery_id: UUID | None = None,
        partition: int | None = None,
        received_at_us: int | None = None,
        topic: str = WEBHOOKS_RAW,
    ) -> UUID:
        """Write one raw record as ingest does. ``source`` may be the digest of a token that is nobody's."""
        assert self._producer is not None
        digest = source if isinstance(source, bytes) else source.digest
        envelope = Envelope(
            id=delivery_id or new_id(),
            token_sha256=digest,
            received_at_us=received_at_us or time.time_ns() // 1000,
            content_type=content_type,
            http=http or {},
            outcome=outcome,
        )
        await self._producer.send_and_wait(
            topic, body, key=record_key(digest), headers=list(encode(envelope)), partition=partition
        )
        return envelope.id

    async def send_headless(self, body: bytes) -> int:
        """Write a record that ingest would never write; returns its offset in partition 0."""
        assert self._producer is not None
        place = await self._producer.send_and_wait(WEBHOOKS_RAW, body, partition=0, headers=[("id", b"\xff")])
        return int(place.offset)

    async def outcomes(self, delivery_id: UUID) -> list[dict[str, Any]]:
        """The ledger's rows of one delivery, by item."""
        return await self.query("select * from webhook_deliveries where id = %s order by item", delivery_id)

    async def decided(self, delivery_id: UUID, items: int = 1) -> list[dict[str, Any]]:
        """The same, once there are ``items`` of them."""

        async def rows() -> list[dict[str, Any]] | None:
            found = await self.outcomes(delivery_id)
            return found if len(found) >= items else None

        return await eventually(rows, f"the outcome of {delivery_id}")

    async def backlog(self, instance_id: UUID) -> list[dict[str, Any]]:
        """The backlog of an instance, oldest first."""
        return await self.query("select * from event_backlog where instance_id = %s order by id", instance_id)

    async def dead_letters(self, delivery_id: UUID) -> list[dict[str, bytes]]:
        """The headers of a delivery's records in the dead-letter topic."""
        consumer = AIOKafkaConsumer(
            WEBHOOKS_DEAD, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            ends = await consumer.end_offsets(consumer.assignment())
            found = []
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    batches = await consumer.getmany(partition, timeout_ms=1000)
                    found += [dict(record.headers) for records in batches.values() for record in records]
            return [headers for headers in found if headers.get("id") == str(delivery_id).encode()]
        finally:
            await consumer.stop()
