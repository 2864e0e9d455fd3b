from __future__ import annotations

import asyncio

import pytest

from room_common.errors import Defect
from room_common.service import Loop, Part


class Failures(list[BaseException]):
    def __call__(self, _part: Part, error: BaseException) -> None:
        self.append(error)


class Ticking(Loop):
    name = "ticking"
    grace = 0.05

    def __init__(self, ending: str) -> None:
        super().__init__()
        self.ending = ending
        self.cancelled = False

    async def run(self) -> None:
        if self.ending == "raise":
            raise ValueError("x")
        if self.ending == "return":
            return
        if self.ending == "stubborn":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        while await self.pause(0.01):
            pass


async def started(ending: str) -> tuple[Ticking, Failures]:
    loop, failures = Ticking(ending), Failures()
    loop.supervise(failures)
    await loop.start()
    await asyncio.sleep(0.05)
    return loop, failures


async def test_a_loop_runs_until_it_is_stopped() -> None:
    loop, failures = await started("obey")
    assert loop.alive() is None
    await loop.stop()
    assert failures == []
    assert not await loop.pause(60)


async def test_a_loop_that_does_not_listen_is_cancelled() -> None:
    loop, failures = await started("stubborn")
    await loop.stop()
    assert loop.cancelled
    assert failures == []


async def test_a_loop_that_raises_fails() -> None:
    loop, failures = await started("raise")
    assert isinstance(failures[0], ValueError)
    assert loop.alive() == "ended"


async def test_a_loop_that_ends_by_itself_fails() -> None:
    _, failures = await started("return")
    assert isinstance(failures[0], Defect)


async def test_a_loop_that_never_started_stops() -> None:
    await Ticking("obey").stop()


async def test_a_part_does_nothing_by_default() -> None:
    part = Part()
    await part.start()
    await part.stop()
    assert part.alive() is None
    assert part.ready() is None
    part.fail(ValueError())


def test_a_loop_takes_a_name() -> None:
    assert Loop("x").name == "x"
    with pytest.raises(NotImplementedError):
        asyncio.run(Loop("x").run())
