from __future__ import annotations

import asyncio

import pytest

from room_matcher.adapters.key_locks import KeyLocks


async def test_equal_keys_take_turns_and_others_do_not_wait() -> None:
    locks = KeyLocks()
    log: list[str] = []
    gate = asyncio.Event()

    async def work(key: str, name: str, wait: bool) -> None:
        async with locks.hold(key):
            log.append(f"{name} in")
            if wait:
                await gate.wait()
            log.append(f"{name} out")

    tasks = [
        asyncio.create_task(work("a", "first", True)),
        asyncio.create_task(work("a", "second", False)),
        asyncio.create_task(work("b", "other", False)),
    ]
    await tasks[2]
    assert log == ["first in", "other in", "other out"]
    gate.set()
    await asyncio.gather(*tasks)
    assert log[3:] == ["first out", "second in", "second out"]
    assert len(locks) == 0


async def test_nothing_is_kept_after_an_error_or_a_cancelled_wait() -> None:
    locks = KeyLocks()
    with pytest.raises(ValueError, match="x"):
        async with locks.hold("a"):
            waiting = asyncio.create_task(locks.hold("a").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            raise ValueError("x")
    assert len(locks) == 0
