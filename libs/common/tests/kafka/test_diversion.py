from __future__ import annotations

import asyncio
from collections.abc import Sequence

from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Work
from room_common.kafka.diversion import GRACE_SECONDS, SLOW_SECONDS, Diversion
from room_common.kafka.execution import Handling
from room_common.kafka.offsets import Progress
from room_common.kafka.records import Record


class Bench:
    """A diversion with a share of two."""

    def __init__(self) -> None:
        self.now = 0.0
        self.offered: list[int] = []
        self.over: list[int] = []
        self.diverted: list[int] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[str] = []
        self.works: dict[int, Work] = {}
        self.progress = Progress(1)

        async def handle(_: Record) -> None:
            raise AssertionError

        async def on_poison(_: Record, error: Exception) -> None:
            raise AssertionError from error

        self.diversion = Diversion(
            Handling(handle, on_poison, share_key=lambda record: record.key, divert=self.divert),
            share=2,
            retry_seconds=0.0,
            on_offer=lambda work: self.offered.append(work.record.offset),
            on_over=lambda work, complete: self.over.append(work.record.offset),
            on_error=lambda name, last: self.errors.append(name),
            clock=lambda: self.now,
        )

    async def divert(self, records: Sequence[Record]) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.diverted += [record.offset for record in records]

    def takes(self, *offsets: int, key: bytes | None = b"a") -> list[bool]:
        for offset in offsets:
            self.works[offset] = Work(Record("t", 0, offset, 0, key, b"", ()), self.progress, 0.0)
        return [self.diversion.takes(self.works[offset]) for offset in offsets]

    async def after_grace(self) -> None:
        self.now += GRACE_SECONDS
        self.diversion._wake.set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_what_is_beyond_the_share_leaves_after_a_moment_and_others_keep_theirs() -> None:
    bench = Bench()
    assert bench.takes(0, 1, 2, 3) == [False, False, True, True]
    assert bench.takes(4, key=b"b") == [False]
    assert bench.takes(5, 6, 7, key=None) == [False] * 3
    await bench.settle()
    assert bench.diverted == []
    await bench.after_grace()
    assert bench.diverted == bench.over == [2, 3]


async def test_one_whose_share_becomes_free_in_time_stays_in_order() -> None:
    bench = Bench()
    bench.takes(0, 1, 2, 3)
    bench.diversion.over(bench.works[1])
    assert bench.offered == [2]
    assert bench.takes(4) == [True]  # not in front of 3
    await bench.after_grace()
    assert bench.diverted == [3, 4]
    for offset in (0, 2):
        bench.diversion.over(bench.works[offset])
    assert bench.takes(5, 6, 7) == [False, False, True]


async def test_a_full_buffer_waits_for_nobody() -> None:
    bench = Bench()
    bench.takes(0, 1, 2)
    await bench.settle()
    bench.diversion.press()
    await bench.settle()
    assert bench.diverted == [2]


async def test_a_key_that_was_slow_does_not_wait_again_and_its_partition_goes_on() -> None:
    bench = Bench()
    bench.takes(0, 1, 2)
    await bench.settle()
    assert bench.diversion.congested() == {("t", 0)}
    await bench.after_grace()
    assert bench.diversion.congested() == set()
    bench.takes(3)
    assert bench.diversion.congested() == set()
    await bench.settle()
    assert bench.diverted == [2, 3]
    bench.now += SLOW_SECONDS
    bench.takes(4)
    await bench.settle()
    assert bench.diverted == [2, 3]
    assert bench.diversion.congested() == {("t", 0)}
    await bench.diversion.drain(0)


async def test_one_that_can_t_be_diverted_is_tried_again_and_is_not_over() -> None:
    bench = Bench()
    bench.error = DependencyUnavailable("kafka", "timeout")
    bench.takes(0, 1, 2)
    await bench.settle()
    await bench.after_grace()
    assert bench.over == []
    bench.error = RuntimeError("unforeseen")
    await bench.settle()
    assert bench.errors
    bench.error = None
    await bench.settle()
    assert bench.diverted == bench.over == [2]


async def test_at_the_end_what_is_handed_over_ends_and_the_rest_is_dropped() -> None:
    bench = Bench()
    bench.gate.clear()
    bench.takes(0, 1, 2)
    await bench.settle()
    await bench.after_grace()
    bench.takes(3)
    drained = asyncio.create_task(bench.diversion.drain(5))
    await bench.settle()
    bench.gate.set()
    await drained
    assert bench.over == [2]
    assert bench.diverted == [2]
