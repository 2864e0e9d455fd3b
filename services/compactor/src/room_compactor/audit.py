"""Every minute: whether each delivery has its outcome, how old the oldest one without is, and what waits for people.

It looks from outside, at Kafka and PostgreSQL alone: what it finds does not depend on counters of processes that died.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry

from room_common.advice import explain
from room_common.contracts.topics import INTAKE_GROUPS, WEBHOOKS_RAW, WEBHOOKS_SLOW
from room_common.errors import DependencyUnavailable
from room_common.kafka.audited import AuditedTopic, audited
from room_common.kafka.settings import KafkaSettings
from room_common.postgres import conservation
from room_common.postgres.database import Database
from room_common.reconciliation import Missing, Reconciler
from room_common.service.parts import Loop
from room_common.telemetry.metrics import DEPENDENCY_UP, counter, gauge
from room_compactor.metrics import CHECKED, CHECKED_AT, GAP, OLDEST, STANDING
from room_compactor.settings import AuditSettings

_REMEMBERED: Final = 10_000
"""Missing deliveries that are looked at again; of more, only the number is known."""
_NAMED: Final = 20

_log = structlog.get_logger(__name__)


class Audit(Loop):
    """Starts with what was written in the last ``window_seconds``, and goes on from there."""

    name = "audit"

    def __init__(
        self, database: Database, kafka: KafkaSettings, settings: AuditSettings, registry: CollectorRegistry
    ) -> None:
        super().__init__()
        self._database = database
        self._kafka = kafka
        self._settings = settings
        self._gap = gauge(registry, GAP)
        self._checked = counter(registry, CHECKED)
        self._checked_at = gauge(registry, CHECKED_AT)
        self._oldest = gauge(registry, OLDEST)
        self._standing = {name: gauge(registry, metric) for name, metric in STANDING.items()}
        self._up = gauge(registry, DEPENDENCY_UP).labels("kafka")
        for topic in (WEBHOOKS_RAW, WEBHOOKS_SLOW):
            self._checked.labels(topic)
        self._missing: dict[UUID, Missing] = {}
        self._more = 0
        self._told: set[UUID] = set()

    async def run(self) -> None:
        """Look, wait, look again; a dependency that is away ends the connections, not the loop."""
        since = datetime.now(UTC) - timedelta(seconds=self._settings.window_seconds)
        while not self.stopping.is_set():
            try:
                async with AsyncExitStack() as stack:
                    topics = {
                        topic: await stack.enter_async_context(audited(self._kafka, topic, group))
                        for topic, group in INTAKE_GROUPS.items()
                    }
                    raw, slow = topics[WEBHOOKS_RAW], topics[WEBHOOKS_SLOW]
                    compared = Reconciler(self._database, raw, slow, round(since.timestamp() * 1000))
                    while True:
                        began = datetime.now(UTC)
                        await self._look(compared, topics)
                        # A new connection starts a window before: twice compared is better than once too seldom.
                        since = began - timedelta(seconds=self._settings.window_seconds)
                        if not await self.pause(self._settings.seconds):
                            return
            except DependencyUnavailable as error:
                self._up.set(0 if error.dependency == "kafka" else 1)
                _log.warning("deliveries not audited", reason=explain(error))
            await self.pause(min(5.0, self._settings.seconds))

    async def _look(self, compared: Reconciler, topics: Mapping[str, AuditedTopic]) -> None:
        async with self._database.transaction() as conn:
            standing = await conservation.standing(conn)
        for name, metric in self._standing.items():
            metric.set(getattr(standing, name))
        for name, topic in topics.items():
            self._oldest.labels(name).set(await _oldest_waiting(topic))
        self._up.set(1)
        before = dict(compared.checked)
        kept = await compared.still_missing(list(self._missing.values()))
        self._missing = {one.id: one for one in kept}
        async for missing in compared.compare():
            if len(self._missing) < _REMEMBERED:
                self._missing[missing.id] = missing
            elif missing.id not in self._missing:
                self._more += 1
        for name, number in compared.checked.items():
            self._checked.labels(name).inc(number - before[name])
        self._gap.set(len(self._missing) + self._more)
        self._checked_at.set_to_current_time()
        self._tell()

    def _tell(self) -> None:
        fresh = [one for one in self._missing if one not in self._told]
        self._told = set(self._missing)
        if fresh:
            _log.error(
                "deliveries were passed without an outcome; `room reconcile` names them",
                fresh=len(fresh),
                all=len(self._missing) + self._more,
                ids=[str(one) for one in fresh[:_NAMED]],
            )


async def _oldest_waiting(topic: AuditedTopic) -> float:
    """Age in seconds of the oldest record that the group has not finished; 0 where there is none."""
    ends = await topic.ends()
    starts = {**await topic.beginnings(), **await topic.committed()}
    waiting = {partition: start for partition, start in starts.items() if start < ends[partition]}
    oldest = 0.0
    async for records in topic.read(waiting, {partition: start + 1 for partition, start in waiting.items()}):
        for record in records:
            oldest = max(oldest, time.time() - record.timestamp_ms / 1000)
    return oldest
