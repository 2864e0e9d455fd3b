from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from room_common.service.lag import MOST, LagWatch


async def test_a_loop_that_turns_has_no_lag() -> None:
    watch = LagWatch(CollectorRegistry())
    assert watch.failing() is None
    watch.start()
    await asyncio.sleep(0)
    assert watch.failing() is None
    watch.stop()


async def test_a_timer_long_overdue_means_a_blocked_loop() -> None:
    watch = LagWatch(CollectorRegistry())
    watch.start()
    watch._due = asyncio.get_running_loop().time() - MOST - 1
    assert "blocked" in (watch.failing() or "")
    await asyncio.sleep(0.01)
    assert watch.seconds() > MOST
    watch.stop()
