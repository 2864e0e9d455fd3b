from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from room_common.coalescing import Coalescer
from room_common.errors import DependencyUnavailable


class Store:
    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def load(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.rounds.append(list(keys))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {key: 10 * key for key in keys}


async def test_what_comes_during_a_round_shares_the_next_and_equal_keys_are_asked_once() -> None:
    store = Store()
    coalescer = Coalescer(store.load, rounds=1)
    first = asyncio.create_task(coalescer.ask(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(coalescer.ask(key)) for key in (2, 3, 2)]
    await asyncio.sleep(0)
    store.gate.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30, 20]
    assert store.rounds == [[1], [2, 3]]


async def test_a_round_is_bounded() -> None:
    store = Store()
    store.gate.set()
    coalescer = Coalescer(store.load, most=2, rounds=1)
    assert await asyncio.gather(*(coalescer.ask(key) for key in range(5))) == [0, 10, 20, 30, 40]
    assert store.rounds == [[0, 1], [2, 3], [4]]


async def test_a_failure_is_told_to_each_of_its_round_and_the_next_round_is_asked_anew() -> None:
    store = Store()
    store.gate.set()
    store.error = DependencyUnavailable("postgresql", "connect")
    coalescer = Coalescer(store.load)
    errors = await asyncio.gather(*(coalescer.ask(key) for key in range(3)), return_exceptions=True)
    assert [str(error) for error in errors] == ["postgresql: connect"] * 3
    assert len({id(error) for error in errors}) == 3
    store.error = None
    assert await coalescer.ask(7) == 70


async def test_one_who_gives_up_takes_no_answer_from_the_others() -> None:
    store = Store()
    coalescer = Coalescer(store.load, rounds=1)
    gone, stays = asyncio.create_task(coalescer.ask(1)), asyncio.create_task(coalescer.ask(2))
    await asyncio.sleep(0)
    gone.cancel()
    store.gate.set()
    assert await stays == 20
    with pytest.raises(asyncio.CancelledError):
        await gone
