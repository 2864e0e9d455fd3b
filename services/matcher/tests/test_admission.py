from __future__ import annotations

import asyncio
from uuid import UUID

from room_matcher.adapters.admission import Admission

ONE, OTHER = UUID(int=1), UUID(int=2)


class Backlog:
    """Pending events by instance."""

    def __init__(self, pending: int) -> None:
        self.pending = {ONE: pending, OTHER: pending}

    async def count(self, instance_id: UUID) -> int:
        await asyncio.sleep(0)
        return self.pending[instance_id]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_pending_alone_at_the_cap_is_full_at_once() -> None:
    backlog = Backlog(3)
    admission = Admission(backlog.count, 3)
    assert await admission.full(ONE)
    async with admission.place(ONE) as admitted:
        assert not admitted


async def test_one_that_may_still_be_refused_waits_only_until_one_in_flight_is_decided() -> None:
    backlog = Backlog(2)
    admission = Admission(backlog.count, 3)
    decided = [asyncio.Event() for _ in range(3)]
    log: list[tuple[int, bool]] = []

    async def event(number: int) -> None:
        async with admission.place(ONE) as admitted:
            log.append((number, admitted))
            if admitted:
                await decided[number].wait()

    tasks = [asyncio.create_task(event(number)) for number in range(3)]
    await settle()
    assert log == [(0, True)]
    decided[0].set()  # no match: the place is free again
    await settle()
    assert log == [(0, True), (1, True)]
    backlog.pending[ONE] = 3  # a match: the backlog is full now
    decided[1].set()
    await asyncio.gather(*tasks)
    assert log == [(0, True), (1, True), (2, False)]


async def test_instances_do_not_wait_for_each_other() -> None:
    admission = Admission(Backlog(2).count, 3)
    async with admission.place(ONE) as first, admission.place(OTHER) as second:
        assert first
        assert second


async def test_a_failure_and_a_cancelled_wait_give_their_places_back() -> None:
    admission = Admission(Backlog(2).count, 3)
    entered = asyncio.Event()

    async def failing() -> None:
        async with admission.place(ONE):
            entered.set()
            await asyncio.sleep(3600)

    async def waiting() -> None:
        async with admission.place(ONE):
            raise AssertionError

    first, second = asyncio.create_task(failing()), asyncio.create_task(waiting())
    await entered.wait()
    await settle()
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    async with admission.place(ONE) as admitted:
        assert admitted
    (instance,) = admission._instances.values()
    assert (instance.users, instance.in_flight) == (0, 0)


async def test_far_from_the_cap_one_count_serves_many_and_near_it_none_is_old() -> None:
    now, counts = [0.0], []

    async def count(instance_id: UUID) -> int:
        counts.append(now[0])
        return 90

    admission = Admission(count, 100, clock=lambda: now[0])
    for _ in range(10):
        async with admission.place(ONE) as admitted:
            assert admitted
    assert counts == [0.0]
    async with admission.place(ONE):  # each of those ten may have matched
        pass
    assert counts == [0.0, 0.0]
    now[0] = 1.5
    async with admission.place(ONE):
        pass
    assert counts == [0.0, 0.0, 1.5]
