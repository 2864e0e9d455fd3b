"""The conservation law: what the matcher passed has its rows, or is named."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from room_cli.__main__ import app
from room_common.contracts.envelope import Envelope, encode
from room_common.contracts.topics import MATCHER_GROUP, TOPICS, WEBHOOKS_RAW
from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.kafka.admin import create_topics
from room_common.kafka.audited import audited
from room_common.kafka.settings import KafkaSettings
from room_common.postgres import ledger
from room_common.postgres.database import Database
from room_common.reconciliation import Reconciler
from room_compactor import audit
from room_compactor.settings import AuditSettings

pytestmark = pytest.mark.integration
FreshTopic = Callable[..., Awaitable[str]]


@dataclass
class World:
    """Two topics as the matcher reads them, and its ledger."""

    settings: KafkaSettings
    database: Database
    producer: AIOKafkaProducer
    raw: str
    slow: str

    async def send(self, topic: str, *ids: UUID, seconds_ago: float = 0.0) -> None:
        at_ms = int((time.time() - seconds_ago) * 1000)
        for delivery_id in ids:
            headers = list(encode(Envelope(delivery_id, bytes(32), at_ms * 1000)))
            await self.producer.send_and_wait(topic, b"{}", headers=headers, partition=0, timestamp_ms=at_ms)

    async def record(self, *ids: UUID, item: int = 0, items: int = 1) -> None:
        now = datetime.now(UTC)
        async with self.database.transaction() as conn:
            await ledger.record(
                conn,
                [ledger.Entry(now, one, item, "no_definitions", 2, self.raw, 0, 0, items=items) for one in ids],
            )

    async def commit(self, topic: str, group: str, offset: int) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.bootstrap_servers, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): offset})
        finally:
            await consumer.stop()

    @asynccontextmanager
    async def reconciler(self, **options: int) -> AsyncIterator[Reconciler]:
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        async with (
            audited(self.settings, self.raw, f"of-{self.raw}") as raw,
            audited(self.settings, self.slow, f"of-{self.slow}") as slow,
        ):
            yield Reconciler(self.database, raw, slow, round(hour_ago.timestamp() * 1000), **options)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


def away(dependency: str) -> Callable[[object], Awaitable[float]]:
    async def ask(_: object) -> float:
        raise DependencyUnavailable(dependency, "connect")

    return ask


async def found(reconciler: Reconciler) -> dict[UUID, tuple[int, ...] | None]:
    return {missing.id: missing.items async for missing in reconciler.compare()}


@pytest.fixture
async def world(
    database: Database, kafka_bootstrap: str, kafka_idempotence: bool, fresh_topic: FreshTopic
) -> AsyncIterator[World]:
    settings = KafkaSettings(
        bootstrap_servers=kafka_bootstrap, idempotence=kafka_idempotence, replication_factor=1, min_insync_replicas=1
    )
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    yield World(settings, database, producer, await fresh_topic(partitions=2), await fresh_topic(partitions=1))
    await producer.stop()


async def test_what_was_passed_without_a_row_is_named_and_nothing_else(world: World) -> None:
    decided, lost, half, waiting = [new_id() for _ in range(30)], new_id(), new_id(), new_id()
    await world.send(world.raw, *decided[:15], lost, half, *decided[15:], waiting)
    await world.record(*decided)
    await world.record(half, item=0, items=3)
    await world.record(half, item=2, items=3)
    await world.commit(world.raw, f"of-{world.raw}", 32)
    async with world.reconciler() as reconciler:
        assert await found(reconciler) == {lost: None, half: (1,)}
        assert reconciler.checked[world.raw] == 32
        # Only what came since is compared.
        assert await found(reconciler) == {}
        await world.commit(world.raw, f"of-{world.raw}", 33)
        assert await found(reconciler) == {waiting: None}
    await world.record(lost)
    async with world.reconciler() as reconciler:
        assert await found(reconciler) == {half: (1,), waiting: None}


async def test_what_waits_in_the_slow_lane_is_not_missing_until_that_lane_has_passed_it(world: World) -> None:
    moved, lost = new_id(), new_id()
    await world.send(world.raw, moved, lost)
    await world.send(world.slow, moved)
    await world.commit(world.raw, f"of-{world.raw}", 2)
    async with world.reconciler() as reconciler:
        assert await found(reconciler) == {lost: None}
        # To its end again, as its key is still missing.
        await world.send(world.slow, moved)
        await world.commit(world.slow, f"of-{world.slow}", 1)
        assert await found(reconciler) == {}
        await world.commit(world.slow, f"of-{world.slow}", 2)
        missing = [one async for one in reconciler.compare()]
        assert [one.id for one in missing] == [moved]
        assert [one.id for one in await reconciler.still_missing(missing)] == [moved]
        await world.record(moved)
        assert await reconciler.still_missing(missing) == []


async def test_many_of_the_slow_lane_are_looked_for_there_while_it_is_read(world: World) -> None:
    lost = [new_id() for _ in range(1200)]
    envelopes = [list(encode(Envelope(one, bytes(32), time.time_ns() // 1000))) for one in lost]
    sending = [await world.producer.send(world.slow, b"{}", headers=one, partition=0) for one in envelopes]
    await asyncio.gather(*sending)
    await world.commit(world.slow, f"of-{world.slow}", len(lost))
    async with world.reconciler(suspects=1) as reconciler:
        assert await found(reconciler) == dict.fromkeys(lost)


@pytest.mark.apache
async def test_what_is_older_than_the_window_and_waits_is_compared_when_it_is_passed(world: World) -> None:
    old, young = new_id(), new_id()
    await world.send(world.raw, old, seconds_ago=7200)
    await world.send(world.raw, young)
    async with world.reconciler() as reconciler:
        assert await found(reconciler) == {}
        await world.commit(world.raw, f"of-{world.raw}", 2)
        assert await found(reconciler) == {old: None, young: None}


@pytest.mark.apache
async def test_what_the_broker_has_deleted_is_passed_over(world: World) -> None:
    lost = [new_id() for _ in range(6)]
    await world.send(world.raw, *lost)
    async with audited(world.settings, world.raw, "nobody") as topic:
        admin = AIOKafkaAdminClient(bootstrap_servers=world.settings.bootstrap_servers)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(world.raw, 0): RecordsToDelete(before_offset=4)})
        finally:
            await admin.close()
        read = [record.offset async for records in topic.read({0: 0}, {0: 6}) for record in records]
    assert read == [4, 5]


async def test_records_without_a_readable_envelope_are_known_by_their_place(world: World) -> None:
    await world.producer.send_and_wait(world.raw, b"x", partition=0)
    await world.commit(world.raw, f"of-{world.raw}", 1)
    async with world.reconciler() as reconciler:
        (nameless,) = await found(reconciler)
    await world.record(nameless)
    async with world.reconciler() as reconciler:
        assert await found(reconciler) == {}


async def test_the_command_names_a_deleted_row(world: World, database_dsn: str, tmp_path: Path) -> None:
    await create_topics(world.settings, TOPICS)
    delivery_id = new_id()
    async with audited(world.settings, WEBHOOKS_RAW, MATCHER_GROUP) as topic:
        await world.send(WEBHOOKS_RAW, delivery_id)
        end = (await topic.ends())[0]
        committed = await topic.committed()
    await world.record(delivery_id)
    await world.commit(WEBHOOKS_RAW, MATCHER_GROUP, max(end, committed.get(0, 0)))
    environ = {
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": world.settings.bootstrap_servers,
        "ROOM_DATABASE__DSN": database_dsn,
    }
    # Other tests wrote to this topic for databases of their own, and more than are named: the window is short.
    before = await asyncio.to_thread(_compare, tmp_path, environ)
    assert str(delivery_id) not in before
    async with world.database.transaction() as conn:
        await conn.execute("delete from webhook_deliveries where id = %s", (delivery_id,))
    after = await asyncio.to_thread(_compare, tmp_path, environ)
    assert after - before == {str(delivery_id)}
    assert CliRunner().invoke(app, ["reconcile", "--window", "8d"], env=environ).exit_code == 2


def _compare(folder: Path, environ: Mapping[str, str]) -> set[str]:
    result = CliRunner().invoke(app, ["reconcile", "--window", "2m", "--json", "-C", str(folder)], env=environ)
    assert result.exit_code in (0, 1), result.output
    document = json.loads(result.stdout)
    assert document["count"] == len(document["missing"])
    return {row["id"] for row in document["missing"]}


async def test_the_compactor_tells_what_is_missing_until_it_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "WEBHOOKS_RAW", world.raw)
    monkeypatch.setattr(audit, "WEBHOOKS_SLOW", world.slow)
    monkeypatch.setattr(audit, "INTAKE_GROUPS", {topic: f"of-{topic}" for topic in (world.raw, world.slow)})
    registry = CollectorRegistry()

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    def up() -> float | None:
        return told("room_dependency_up", dependency="kafka")

    decided, lost, waiting = new_id(), new_id(), new_id()
    await world.send(world.raw, decided, lost)
    await world.send(world.raw, waiting, seconds_ago=100)
    await world.record(decided)
    await world.commit(world.raw, f"of-{world.raw}", 2)
    part = audit.Audit(world.database, world.settings, AuditSettings(seconds=0.1), registry)
    await part.start()
    try:
        await until(lambda: told("room_conservation_gap") == 1)
        assert told("room_conservation_checked_total", topic=world.raw) == 2
        assert (told("room_conservation_checked_timestamp_seconds") or 0) > time.time() - 60
        assert 100 <= (told("room_undecided_oldest_seconds", topic=world.raw) or 0) < 160
        assert told("room_undecided_oldest_seconds", topic=world.slow) == 0
        assert up() == 1
        looked = audit._oldest_waiting
        monkeypatch.setattr(audit, "_oldest_waiting", away("kafka"))
        await until(lambda: up() == 0)
        monkeypatch.setattr(audit, "_oldest_waiting", away("postgresql"))
        await until(lambda: up() == 1)
        monkeypatch.setattr(audit, "_oldest_waiting", looked)
        await world.record(lost, waiting)
        await world.commit(world.raw, f"of-{world.raw}", 3)
        await until(
            lambda: told("room_conservation_gap") == told("room_undecided_oldest_seconds", topic=world.raw) == 0
        )
        assert up() == 1
    finally:
        await part.stop()
