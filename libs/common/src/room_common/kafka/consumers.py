"""What all our consumers share: their settings, a bounded stop, lost offsets, and how to tell that one is stuck.

The settings and the need for each are facts of aiokafka 0.14, which has no cooperative rebalancing, loops without end
on retriable errors, and whose background tasks may die without a word.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from room_common.kafka.security import client_options
from room_common.kafka.settings import KafkaSettings

REBALANCE_MARGIN_SECONDS: Final = 20.0
POLL_LIMIT_SECONDS: Final = 60.0
REJOIN_LIMIT_SECONDS: Final = 120.0
SEARCH_LIMIT_SECONDS: Final = 900.0
"""How long a member may look for its group's coordinator: longer than most outages, since a restart would not help."""

_DAY_MS: Final = 86_400_000
_OBSERVING_STOP_SECONDS: Final = 3.0
_OBSERVING_PARTITION_BYTES: Final = 256 * 1024
_OBSERVING_WAIT_MS: Final = 250
_CUT_LIMIT: Final = 1.0


def group_options(
    settings: KafkaSettings, *, drain_seconds: float, partition_bytes: int = 256 * 1024
) -> dict[str, Any]:
    """How we take part in a group, for aiokafka and FastStream alike.

    ``drain_seconds`` is how long a revocation may wait for running handlers; ``partition_bytes`` how much of a
    partition one fetch may bring. Polling is never the sign of life (``max_poll_interval_ms`` is a day), so a held
    consumer stays in its group. A new group, or one whose offsets the broker has deleted, starts at the oldest record.
    """
    return {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": (StickyPartitionAssignor,),
        "session_timeout_ms": settings.session_timeout_ms,
        "heartbeat_interval_ms": settings.heartbeat_interval_ms,
        "max_poll_interval_ms": _DAY_MS,
        "rebalance_timeout_ms": _rebalance_ms(settings, drain_seconds),
        "max_partition_fetch_bytes": partition_bytes,
        "fetch_max_bytes": 16 * partition_bytes,
        "fetch_max_wait_ms": 500,
    }


def request_timeout_ms(settings: KafkaSettings, drain_seconds: float) -> int:
    """A consumer's limit for one request, longer than a rebalance.

    The answer to joining a group comes when all members have joined. A client that gives up before leaves a ghost
    behind, for which the whole group then waits.
    """
    return max(settings.request_timeout_ms, _rebalance_ms(settings, drain_seconds) + 5_000)


def _rebalance_ms(settings: KafkaSettings, drain_seconds: float) -> int:
    return int(max(settings.session_timeout_ms, (drain_seconds + REBALANCE_MARGIN_SECONDS) * 1000))


def make_consumer(
    settings: KafkaSettings, group: str, *, drain_seconds: float, partition_bytes: int = 256 * 1024
) -> AIOKafkaConsumer:
    """An aiokafka consumer with our settings, not yet subscribed or started."""
    return AIOKafkaConsumer(
        group_id=group,
        client_id=f"room-{group}",
        **client_options(settings)
        | {"request_timeout_ms": request_timeout_ms(settings, drain_seconds)}
        | group_options(settings, drain_seconds=drain_seconds, partition_bytes=partition_bytes),
    )


@asynccontextmanager
async def observing_consumer(
    settings: KafkaSettings, *, client_id: str, group: str | None = None
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer that joins no group and commits nothing. ``group`` is one whose commits it may ask for.

    It takes no position by itself. A partition that is assigned before its position is given makes the fetcher report
    that it has none, whenever it gets to run in between: ``assign`` only where ``seek`` follows at once, and have the
    metadata by :func:`know_topics`. Raises aiokafka's errors, without a limit of time.
    """
    consumer = AIOKafkaConsumer(
        group_id=group,
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=_OBSERVING_PARTITION_BYTES,
        fetch_max_bytes=16 * _OBSERVING_PARTITION_BYTES,
        fetch_max_wait_ms=_OBSERVING_WAIT_MS,
        **client_options(settings),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await stop_consumer(consumer, _OBSERVING_STOP_SECONDS)


async def know_topics(consumer: AIOKafkaConsumer, topics: Iterable[str]) -> None:
    """Have the metadata of ``topics`` without an assignment."""
    await consumer._client.set_topics(sorted(topics))


async def stop_consumer(consumer: AIOKafkaConsumer, seconds: float) -> bool:
    """Leave the group and close, in at most ``seconds``. False when that did not end and the connections were cut.

    It runs as a task of its own: with the broker away, aiokafka's ``stop`` never returns, or raises its own
    ``CancelledError`` into the caller.
    """
    task = asyncio.ensure_future(consumer.stop())
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        _forget(task)
        return True
    task.cancel()
    cut = asyncio.ensure_future(consumer._client.close())
    for abandoned in (task, cut):
        abandoned.add_done_callback(_forget)
    await asyncio.wait({cut}, timeout=_CUT_LIMIT)
    return False


def _forget(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in a partition: its committed offset (None: none yet) and the oldest offset there is."""

    committed: int | None
    beginning: int

    @property
    def lost(self) -> int:
        """Offsets after the committed one that the broker no longer has. A new group has lost nothing."""
        return 0 if self.committed is None else max(0, self.beginning - self.committed)

    @property
    def start(self) -> int:
        """Where consumption goes on."""
        return self.beginning if self.committed is None else max(self.committed, self.beginning)


async def standings(
    consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition], seconds: float
) -> dict[TopicPartition, Standing]:
    """Ask the broker. Raises ``TimeoutError`` and ``KafkaError``."""
    wanted = list(partitions)
    if not wanted:
        return {}
    async with asyncio.timeout(seconds):
        committed = await asyncio.gather(*(consumer.committed(tp) for tp in wanted))
        beginnings = await consumer.beginning_offsets(wanted)
    return {tp: Standing(offset, beginnings[tp]) for tp, offset in zip(wanted, committed, strict=True)}


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Whether the group still counts us in: without a generation a commit would not be fenced."""
    coordinator = consumer._coordinator
    return coordinator is not None and coordinator.generation >= 0


def is_reassigning(consumer: AIOKafkaConsumer) -> bool:
    """Whether a rebalance is under way: polls wait for its end without a limit."""
    return bool(consumer._subscription.reassignment_in_progress)


class ConsumerWatch:
    """Tells that a consumer has stopped progressing although its process lives. Asks no broker.

    aiokafka offers no public sign of the deaths that happen in practice, so this looks at its private tasks; a test
    keeps these names honest across upgrades.
    """

    def __init__(self) -> None:
        self._rejoining_since: float | None = None
        self._searching_since: float | None = None

    def dead(self, consumer: AIOKafkaConsumer) -> str | None:
        """Which background task of a started consumer has ended for good, if any."""
        coordinator, fetcher = consumer._coordinator, consumer._fetcher
        if coordinator is not None and coordinator._coordination_task.done():
            return "the group coordination task ended"
        if fetcher is not None and fetcher._fetch_task.done():
            return "the fetch task ended"
        return None

    def trouble(self, consumer: AIOKafkaConsumer, now: float) -> str | None:
        """The same, and a rejoin or a search for the coordinator that takes too long. ``now`` is monotonic seconds.

        While no coordinator is known the broker is away rather than this member stuck, so that has a limit of its own.
        """
        reason = self.dead(consumer)
        if reason is not None:
            return reason
        coordinator = consumer._coordinator
        if coordinator is None:
            return None
        known = coordinator.coordinator_id is not None
        self._searching_since = _since(self._searching_since, not known, now)
        self._rejoining_since = _since(self._rejoining_since, known and coordinator._rejoin_needed_fut.done(), now)
        if self._rejoining_since is not None and now - self._rejoining_since > REJOIN_LIMIT_SECONDS:
            return "rejoining the group does not end"
        if self._searching_since is not None and now - self._searching_since > SEARCH_LIMIT_SECONDS:
            return "the group's coordinator is not found"
        return None


def _since(since: float | None, active: bool, now: float) -> float | None:
    if not active:
        return None
    return now if since is None else since
