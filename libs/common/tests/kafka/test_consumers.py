from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from room_common.kafka.consumers import (
    REJOIN_LIMIT_SECONDS,
    SEARCH_LIMIT_SECONDS,
    ConsumerWatch,
    Standing,
    group_options,
    request_timeout_ms,
    stop_consumer,
)
from room_common.kafka.metrics import kafka_metrics
from room_common.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings(bootstrap_servers="kafka:9092")


def fake(*, coordination_done: bool = False, fetch_done: bool = False, known: bool = True, rejoin: bool = False) -> Any:
    def task(done: bool) -> Any:
        return SimpleNamespace(done=lambda: done)

    return SimpleNamespace(
        _coordinator=SimpleNamespace(
            _coordination_task=task(coordination_done),
            coordinator_id=1 if known else None,
            _rejoin_needed_fut=task(rejoin),
        ),
        _fetcher=SimpleNamespace(_fetch_task=task(fetch_done)),
    )


def test_nothing_is_committed_by_itself_and_nothing_skipped() -> None:
    options = group_options(SETTINGS, drain_seconds=5)
    assert options["enable_auto_commit"] is False
    assert options["auto_offset_reset"] == "earliest"
    assert options["rebalance_timeout_ms"] >= 25_000
    assert options["max_poll_interval_ms"] == 24 * 3600 * 1000
    assert [assignor.name for assignor in options["partition_assignment_strategy"]] == ["sticky"]


def test_a_join_may_take_as_long_as_a_rebalance() -> None:
    for drain in (0.0, 5.0, 60.0):
        assert (
            request_timeout_ms(SETTINGS, drain) > group_options(SETTINGS, drain_seconds=drain)["rebalance_timeout_ms"]
        )


@pytest.mark.parametrize(
    ("committed", "beginning", "lost", "start"), [(None, 7, 0, 7), (5, 7, 2, 7), (7, 7, 0, 7), (9, 7, 0, 9)]
)
def test_standing(committed: int | None, beginning: int, lost: int, start: int) -> None:
    standing = Standing(committed, beginning)
    assert standing.lost == lost
    assert standing.start == start


def test_a_healthy_consumer_is_no_trouble() -> None:
    assert ConsumerWatch().trouble(fake(), 0) is None


@pytest.mark.parametrize("death", ["coordination_done", "fetch_done"])
def test_a_dead_task_is_trouble(death: str) -> None:
    assert ConsumerWatch().trouble(fake(**{death: True}), 0) is not None


def test_a_rejoin_without_end_is_trouble() -> None:
    watch = ConsumerWatch()
    assert watch.trouble(fake(rejoin=True), 0) is None
    assert watch.trouble(fake(rejoin=True), REJOIN_LIMIT_SECONDS) is None
    assert watch.trouble(fake(rejoin=True), REJOIN_LIMIT_SECONDS + 1) is not None
    assert watch.trouble(fake(), REJOIN_LIMIT_SECONDS + 2) is None


def test_a_broker_that_is_away_is_no_trouble_for_long() -> None:
    watch = ConsumerWatch()
    assert watch.trouble(fake(rejoin=True, known=False), 0) is None
    assert watch.trouble(fake(rejoin=True, known=False), SEARCH_LIMIT_SECONDS) is None
    assert watch.trouble(fake(rejoin=True, known=False), SEARCH_LIMIT_SECONDS + 1) is not None


async def test_a_stop_that_does_not_end_is_abandoned() -> None:
    class Stuck:
        def __init__(self) -> None:
            self.cut = False
            self._client = self

        async def stop(self) -> None:
            await asyncio.Event().wait()

        async def close(self) -> None:
            self.cut = True

    stuck = Stuck()
    assert not await stop_consumer(stuck, 0.0)
    assert stuck.cut


@pytest.mark.parametrize("error", [RuntimeError(), asyncio.CancelledError()])
async def test_a_stop_that_raises_is_over(error: BaseException) -> None:
    class Raising:
        async def stop(self) -> None:
            raise error

    assert await stop_consumer(Raising(), 1.0)


def test_instruments_are_made_once_for_a_registry() -> None:
    registry = CollectorRegistry()
    assert kafka_metrics(registry) is kafka_metrics(registry)
    assert kafka_metrics(CollectorRegistry()) is not kafka_metrics(registry)
