from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from room_common.errors import DependencyUnavailable
from room_common.kafka.attempts import Attempts, Work
from room_common.kafka.dispatch import Dispatcher
from room_common.kafka.execution import Postponed
from room_common.kafka.offsets import Progress
from room_common.kafka.records import Record


def record(offset: int = 0, key: bytes | None = None) -> Record:
    return Record("topic", 0, offset, 0, key, b"", ())


async def no_poison(_: Record, error: Exception) -> None:
    raise AssertionError("no poison was expected") from error


class Bench:
    """A dispatcher whose handlers wait until the test lets them go."""

    def __init__(
        self,
        handle: Callable[[Record], Awaitable[None]] | None = None,
        *,
        on_poison: Callable[[Record, Exception], Awaitable[None]] = no_poison,
        concurrency: int = 2,
        probe: float = 0.0,
    ) -> None:
        self.progress = Progress(1)
        self.started: list[int] = []
        self.over: list[tuple[int, bool]] = []
        self.changes: list[tuple[str, bool]] = []
        self.errors: list[tuple[str, bool]] = []
        self.crashes: list[BaseException] = []
        self.outcomes: dict[int, asyncio.Future[None]] = {}
        self.dispatcher = Dispatcher(
            Attempts(
                handle or self.handle,
                on_poison,
                attempts=3,
                pause_seconds=0.0,
                on_error=lambda name, last: self.errors.append((name, last)),
            ),
            concurrency=concurrency,
            probe_seconds=probe,
            on_over=lambda work, complete: self.over.append((work.record.offset, complete)),
            on_change=lambda reason, began: self.changes.append((reason, began)),
            on_crash=self.crashes.append,
        )
        self.dispatcher.open = True

    async def handle(self, record: Record) -> None:
        self.started.append(record.offset)
        await self.outcomes.setdefault(record.offset, asyncio.get_running_loop().create_future())

    def offer(self, *keys: Any) -> None:
        for offset, key in enumerate(keys):
            self.dispatcher.offer(key, Work(record(offset), self.progress, 0.0))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def pump(self) -> None:
        self.dispatcher.pump()
        await self.settle()

    async def end(self, offset: int, error: BaseException | None = None) -> None:
        future = self.outcomes.pop(offset)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await self.settle()


async def test_different_keys_run_side_by_side_up_to_the_limit() -> None:
    bench = Bench()
    bench.offer("a", "b", "c")
    await bench.pump()
    assert bench.started == [0, 1]
    await bench.end(1)
    assert bench.started == [0, 1, 2]
    assert bench.over == [(1, True)]


async def test_equal_keys_run_one_after_the_other() -> None:
    bench = Bench()
    bench.offer("a", "a", "b")
    await bench.pump()
    assert bench.started == [0, 2]
    await bench.end(0)
    assert bench.started == [0, 2, 1]


async def test_an_absent_dependency_holds_and_keeps_the_record() -> None:
    bench = Bench(concurrency=3, probe=3600)
    bench.offer("a", "b")
    await bench.pump()
    await bench.end(0, DependencyUnavailable("llm", "timeout"))
    assert bench.dispatcher.reasons == ("llm_timeout",)
    assert bench.over == []
    bench.dispatcher.offer("c", Work(record(2), bench.progress, 0.0))
    await bench.pump()
    assert bench.started == [0, 1]
    await bench.end(1)
    assert bench.over == [(1, True)]
    assert bench.dispatcher.reasons == ("llm_timeout",)
    bench.dispatcher.release()
    await bench.settle()
    assert bench.started == [0, 1, 0, 2]
    assert bench.errors == []
    assert bench.changes == [("llm_timeout", True), ("llm_timeout", False)]


async def test_a_probe_is_one_record_and_its_success_ends_the_hold() -> None:
    bench = Bench(concurrency=3, probe=0)
    bench.offer("a", "b", "c")
    bench.dispatcher.hold("llm_timeout", probe=True, wish=None)
    await bench.pump()
    assert bench.started == [0]
    await bench.end(0, DependencyUnavailable("llm", "timeout"))
    assert bench.started == [0, 1]
    await bench.end(1)
    assert bench.dispatcher.reasons == ()
    assert bench.started == [0, 1, 2, 0]


async def test_a_probe_waits_for_what_runs() -> None:
    bench = Bench(concurrency=3, probe=0)
    bench.offer("a", "b")
    await bench.pump()
    await bench.end(0, DependencyUnavailable("llm", "timeout"))
    assert bench.started == [0, 1]
    await bench.end(1)
    assert bench.started == [0, 1, 0]


async def test_a_hold_without_probe_lets_nothing_through() -> None:
    bench = Bench(probe=0)
    bench.offer("a")
    bench.dispatcher.hold("dead_letters", probe=False, wish=None)
    await bench.pump()
    assert bench.started == []
    assert not bench.dispatcher.lacks_probe
    bench.dispatcher.release("dead_letters")
    await bench.settle()
    assert bench.started == [0]


async def test_without_a_record_to_probe_with_one_is_asked_for() -> None:
    bench = Bench(probe=0)
    lacks = [bench.dispatcher.lacks_probe]
    bench.dispatcher.hold("postgresql_connect", probe=True, wish=None)
    lacks.append(bench.dispatcher.lacks_probe)
    bench.offer("a")
    lacks.append(bench.dispatcher.lacks_probe)
    assert lacks == [False, True, False]


async def test_a_record_that_always_fails_holds_up_no_other_for_ever() -> None:
    bench = Bench(concurrency=1, probe=0)
    bench.offer("a", "b", "c")
    await bench.pump()
    for _ in range(3):
        if 0 in bench.outcomes:
            await bench.end(0, DependencyUnavailable("llm", "server_error"))
        (other,) = [offset for offset in bench.outcomes if offset != 0] or (0,)
        if other:
            await bench.end(other)
    assert [offset for offset, complete in bench.over if complete] == [1, 2]


async def test_where_all_records_failed_another_one_is_asked_for() -> None:
    bench = Bench(concurrency=1, probe=3600)
    bench.offer("a")
    await bench.pump()
    lacks = [bench.dispatcher.lacks_probe]
    await bench.end(0, DependencyUnavailable("llm", "server_error"))
    lacks.append(bench.dispatcher.lacks_probe)
    bench.dispatcher.offer("b", Work(record(1), bench.progress, 0.0))
    lacks.append(bench.dispatcher.lacks_probe)
    assert lacks == [False, True, False]


async def test_a_postponed_record_waits_alone_and_is_handled_again() -> None:
    tries = {0: 0, 1: 0, 2: 0}

    async def handle(record: Record) -> None:
        tries[record.offset] += 1
        if record.offset == 0 and tries[0] < 3:
            raise Postponed("key", 0.001)

    bench = Bench(handle, concurrency=1)
    bench.offer("a", "b", "a")
    await bench.pump()
    assert bench.over == [(1, True)]
    assert (bench.dispatcher.postponed, bench.dispatcher.running) == ({"key": 1}, 0)
    assert bench.changes == []
    while len(bench.over) < 3:
        await asyncio.sleep(0.001)
    assert bench.over == [(1, True), (0, True), (2, True)]
    assert (bench.dispatcher.postponed, bench.errors, tries[0]) == ({}, [], 3)


async def test_a_postponed_record_is_forgotten_when_partitions_go() -> None:
    async def handle(record: Record) -> None:
        raise Postponed("key", 0.001)

    bench = Bench(handle)
    bench.offer("a", "a")
    await bench.pump()
    bench.dispatcher.close()
    await asyncio.sleep(0.005)
    assert (bench.dispatcher.postponed, bench.over, len(bench.dispatcher._lanes)) == ({}, [], 0)


async def test_a_probe_that_is_postponed_ends_no_hold_and_the_next_one_does() -> None:
    async def handle(record: Record) -> None:
        if record.offset == 0:
            raise Postponed("key", 3600)

    bench = Bench(handle, concurrency=3, probe=0)
    bench.offer("a", "b")
    bench.dispatcher.hold("llm_timeout", probe=True, wish=None)
    await bench.pump()
    assert bench.over == [(1, True)]
    assert bench.changes == [("llm_timeout", True), ("llm_timeout", False)]


async def test_poison_is_handed_on_after_the_last_attempt() -> None:
    poisoned: list[tuple[int, str]] = []

    async def handle(_: Record) -> None:
        raise KeyError("x")

    async def on_poison(record: Record, error: Exception) -> None:
        poisoned.append((record.offset, type(error).__name__))

    bench = Bench(handle, on_poison=on_poison)
    bench.offer("a")
    await bench.pump()
    assert poisoned == [(0, "KeyError")]
    assert bench.over == [(0, True)]
    assert bench.errors == [("KeyError", False), ("KeyError", False), ("KeyError", True)]


async def test_poison_that_can_not_be_put_aside_holds_and_is_not_handled_again() -> None:
    handled = 0
    answers: list[Exception | None] = [DependencyUnavailable("kafka", "timeout"), RuntimeError(), None]

    async def handle(_: Record) -> None:
        nonlocal handled
        handled += 1
        raise KeyError("x")

    async def on_poison(record: Record, error: Exception) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    bench = Bench(handle, on_poison=on_poison, probe=0)
    bench.offer("a")
    await bench.pump()
    await bench.settle()
    assert answers == []
    assert handled == 3
    assert bench.over == [(0, True)]
    assert bench.changes == [("kafka_timeout", True), ("kafka_timeout", False)]


async def test_an_outage_spends_no_attempt() -> None:
    errors: list[BaseException] = [KeyError(), DependencyUnavailable("llm"), KeyError(), DependencyUnavailable("llm")]

    async def handle(_: Record) -> None:
        if errors:
            raise errors.pop(0)

    bench = Bench(handle, probe=0)
    bench.offer("a")
    await bench.pump()
    await bench.settle()
    assert bench.over == [(0, True)]
    assert [last for _, last in bench.errors] == [False, False]


async def test_a_cancellation_from_inside_is_an_error_like_others() -> None:
    attempts = 0

    async def handle(_: Record) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncio.CancelledError

    bench = Bench(handle)
    bench.offer("a")
    await bench.pump()
    assert bench.over == [(0, True)]


async def test_after_close_nothing_starts_and_running_records_may_finish() -> None:
    bench = Bench(concurrency=1)
    bench.offer("a", "b", "a")
    await bench.pump()
    bench.dispatcher.close()
    await bench.end(0)
    assert bench.started == [0]
    assert bench.over == [(0, True)]


async def test_cancelled_records_are_given_up() -> None:
    bench = Bench()
    bench.offer("a")
    await bench.pump()
    bench.dispatcher.close()
    await bench.dispatcher.cancel(1.0)
    assert bench.over == [(0, False)]


async def test_a_record_of_an_ended_assignment_is_neither_started_nor_completed() -> None:
    bench = Bench(concurrency=1)
    bench.offer("a", "b")
    await bench.pump()
    bench.progress.alive = False
    await bench.end(0)
    assert bench.started == [0]
    assert bench.over == [(0, False), (1, False)]


async def test_what_no_handler_may_raise_ends_the_process() -> None:
    class Fatal(BaseException):
        pass

    bench = Bench()
    bench.offer("a")
    await bench.pump()
    await bench.end(0, Fatal())
    assert [type(error) for error in bench.crashes] == [Fatal]
    assert bench.over == [(0, False)]


@pytest.mark.parametrize("reason", ["a", "b"])
async def test_a_hold_is_told_once(reason: str) -> None:
    bench = Bench()
    bench.dispatcher.hold(reason, probe=True, wish=None)
    bench.dispatcher.hold(reason, probe=True, wish=None)
    bench.dispatcher.release("other")
    assert bench.changes == [(reason, True)]


async def test_a_hold_knows_where_the_dependency_was_looked_for_and_what_to_look_at() -> None:
    bench = Bench()
    bench.dispatcher.hold_for(DependencyUnavailable("llm", "connect", at="127.0.0.1:1"))
    why = bench.dispatcher.why("llm_connect")
    assert why is not None and "127.0.0.1:1" in why and "ROOM_LLM__BASE_URL" in why
    assert bench.dispatcher.why("another") is None
