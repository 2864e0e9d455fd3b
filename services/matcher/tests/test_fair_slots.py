from __future__ import annotations

import asyncio

import pytest

from room_matcher.adapters.fair_slots import FairSlots


class Bench:
    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.running: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._run(name))
            await asyncio.sleep(0)

    async def _run(self, name: str) -> None:
        self.ends[name] = asyncio.Event()
        async with self.slots.hold(name[0]):
            self.running.append(name)
            await self.ends[name].wait()
            self.running.remove(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        for _ in range(5):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_nobody_holds_more_than_its_part_even_while_places_are_free() -> None:
    bench = Bench(FairSlots(4))
    await bench.start("a1", "a2", "a3", "b1")
    assert bench.running == ["a1", "a2", "b1"]
    await bench.end("a1")
    assert bench.running == ["a2", "b1", "a3"]
    await bench.close()


async def test_those_who_wait_take_turns() -> None:
    bench = Bench(FairSlots(2, part=2))
    await bench.start("a1", "a2", "a3", "a4", "b1", "c1")
    await bench.end("a1")
    await bench.end("a2")
    assert bench.running == ["a3", "b1"]
    await bench.end("a3")
    assert bench.running == ["b1", "c1"]
    await bench.end("b1")
    assert bench.running == ["c1", "a4"]
    await bench.close()


async def test_a_key_may_have_a_limit_of_its_own() -> None:
    slots = FairSlots(8)
    slots.limit("s", 1)
    bench = Bench(slots)
    await bench.start("s1", "s2", "a1")
    assert bench.running == ["s1", "a1"]
    await bench.close()


@pytest.mark.parametrize("when", ["waiting", "given"])
async def test_one_that_gives_up_leaves_its_place_to_the_next(when: str) -> None:
    bench = Bench(FairSlots(1, part=1))
    await bench.start("a1", "b1", "c1")
    if when == "given":
        bench.ends["a1"].set()
        await asyncio.sleep(0)
    bench.tasks["b1"].cancel()
    await bench.end("a1")
    assert bench.running == ["c1"]
    await bench.end("c1")
    await bench.start("d1")
    assert bench.running == ["d1"]
    await bench.close()
    assert bench.slots._free == 1
    assert bench.slots._held == {}
