"""Cycles that lose their worker: they go on from the last recorded step, under another lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from room_common import faults
from room_common.errors import DependencyUnavailable, LeaseLost
from room_common.llm.port import ChatRequest, Completion
from room_common.postgres import resuming
from room_runner.outside import OutsideTool, ToolFailed
from room_testing.running import SeededRoom, events_in
from room_testing.staging import FakeLlm, Stage, call, mark, tell, text

pytestmark = pytest.mark.integration


class Killed(BaseException):
    """The process is gone at this very point."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    faults.arm(lambda name: None)


def kill_at(where: int | str) -> list[str]:
    """Die at the crash point of that number or name; returns the names that were passed."""
    passed: list[str] = []

    def hook(name: str) -> None:
        passed.append(name)
        if where in (len(passed), name):
            raise Killed(name)

    faults.arm(hook)
    return passed


@dataclass
class Recorder:
    """A tool that acts outside, and remembers how often."""

    name: str = "ring"
    description: str = "Ring a bell."
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    verified_only: bool = False
    rung: list[str] = field(default_factory=list)
    answer: str = "rung"
    failure: Exception | None = None
    before: asyncio.Event | None = None

    async def call(self, arguments: str) -> str:
        self.rung.append(arguments)
        if self.before is not None:
            await self.before.wait()
        if self.failure is not None:
            raise self.failure
        return self.answer

    async def tools(self, instance_id: object) -> dict[str, OutsideTool]:
        return {self.name: self}


@dataclass
class Diligent:
    """Rings twice at once, tells the human, marks, ends; it reads from the conversation where it stands."""

    requests: list[ChatRequest] = field(default_factory=list)

    async def complete(self, request: ChatRequest) -> Completion:
        if not request.tools:
            return text("OK")
        self.requests.append(request)
        said = sum(message["role"] == "assistant" for message in request.messages)
        events = ", ".join(f'"{event}"' for event in events_in(request.messages))
        answers = [
            call(("ring", '{"bell": 1}'), tell("Done."), ("ring", '{"bell": 2}')),
            text("I am done."),
            call(("mark_events_completed", f'{{"event_ids": [{events}]}}')),
            text("NO_MESSAGE"),
        ]
        return answers[said]


async def settle(stage: Stage, room: SeededRoom, llm: Diligent) -> None:
    for _ in range(6):
        if await stage.lose(room) is None and [row["status"] for row in await stage.world.cycles(room)] == [
            "succeeded"
        ]:
            return
        await (await stage.cycle(room, llm)).run()
    raise AssertionError("never settled")


def points() -> list[str]:
    """The crash points that a cycle of :class:`Diligent` passes. The test below holds this list to the facts."""
    step = ["before_look_commit", "after_look_commit", "after_llm", "before_step_commit", "after_step_commit"]
    tool, asked = ["before_tool_commit", "after_tool_commit"], ["before_look_commit", "after_look_commit"]
    rung = ["before_call_commit", "after_call_commit", "after_outside_call", *tool]
    names = [
        *("before_open_commit", "after_open_commit"),
        *(*step, *rung, *tool, *rung, "after_tool"),
        *(*step, *asked, "before_reminder_commit", "after_reminder_commit"),
        *(*step, *tool, "after_tool"),
        *(*step, *asked, "before_finish_commit", "after_finish_commit"),
    ]
    return [f"runner.{name}" for name in names]


@pytest.mark.parametrize("nth", range(1, len(points()) + 1), ids=lambda nth: f"{nth}-{points()[nth - 1]}")
async def test_killed_at_every_point_it_pays_for_no_finished_call_and_repeats_no_effect(stage: Stage, nth: int) -> None:
    bell = Recorder()
    stage.outside = bell
    room = await stage.world.room()
    await stage.world.event(room)
    await stage.world.reply(room)
    llm = Diligent()
    cycle = await stage.cycle(room, llm)
    passed = kill_at(nth)
    with pytest.raises(Killed):
        await cycle.run()
    faults.arm(lambda name: None)
    assert passed == points()[:nth]
    await settle(stage, room, llm)
    (row,) = await stage.world.cycles(room)
    point = points()[nth - 1]
    paid_twice = point in ("runner.after_llm", "runner.before_step_commit")
    assert (row["steps"], len(llm.requests)) == (4, 4 + paid_twice)
    assert row["resumes"] == (point not in ("runner.before_open_commit", "runner.after_finish_commit"))
    assert [message["text"] for message in await stage.world.messages(room)] == ["Done."]
    assert [(event["status"], event["attempts"]) for event in await stage.world.events(room)] == [("completed", 0)]
    assert [reply["status"] for reply in await stage.world.query("select status from room_inbox")] == ["read"]
    kinds = await stage.world.activity(room)
    assert [kinds.count(kind) for kind in ("cycle_started", "cycle_finished")] == [1, 1]
    results = [str(message["content"]) for message in await stage.transcript(room) if message["role"] == "tool"]
    uncertain = sum("may or may not have happened" in result for result in results)
    assert len(results) == 4 and len(set(bell.rung)) == len(bell.rung)
    # A call that was begun is never made again, and the model is told: what it rang and what it was told add up.
    assert 2 <= len(bell.rung) + uncertain <= 3
    (usage,) = await stage.world.query("select sum(tokens) as tokens from token_usage")
    assert usage["tokens"] == 4 * 110


async def test_the_points_are_all_there_are(stage: Stage) -> None:
    stage.outside = Recorder()
    room = await stage.world.room()
    await stage.world.event(room)
    passed = kill_at(0)
    assert await (await stage.cycle(room, Diligent())).run() == "succeeded"
    assert passed == points()


async def test_after_three_resumes_without_a_step_it_is_abandoned(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    await stage.world.reply(room)
    llm = FakeLlm([text("never asked")])
    for lost in range(1, 5):
        cycle = await stage.cycle(room, llm)
        kill_at("runner.before_look_commit")
        with pytest.raises(Killed):
            await cycle.run()
        swept = await stage.lose(room)
        assert swept is not None
        assert swept.ended == (None if lost < 4 else "lease_expired")
    (row,) = await stage.world.cycles(room)
    assert (row["status"], row["resumes"], row["error_kind"]) == ("abandoned", 3, "lease_expired")
    assert [(event["status"], event["attempts"]) for event in await stage.world.events(room)] == [("pending", 1)]
    assert [reply["status"] for reply in await stage.world.query("select status from room_inbox")] == ["unread"]
    assert llm.requests == []


async def test_a_step_resets_the_count_of_losses(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    llm = FakeLlm([call(tell("again"))])
    for step in range(1, 6):
        cycle = await stage.cycle(room, llm)
        kill_at("runner.after_step_commit")
        with pytest.raises(Killed):
            await cycle.run()
        assert await stage.lose(room) is not None
        (row,) = await stage.world.cycles(room)
        assert (row["status"], row["steps"], row["losses"]) == ("running", step, 1)


async def test_the_deadline_counts_time_under_leases_and_not_the_time_between(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    stage.draining.set()
    assert (await stage.run(room, text("x")))[0] == "suspended"
    await stage.world.query("update room_cycles set started_at = started_at - interval '1 hour'")
    (before,) = await stage.world.cycles(room)
    await stage.cycle(room, FakeLlm([text("x")]))
    await stage.world.query("update instance_room set leased_at = now() - interval '100 seconds'")
    assert await stage.lose(room) is not None
    (row,) = await stage.world.cycles(room)
    assert 98 < row["used_seconds"] - before["used_seconds"] < 102
    stage.draining.clear()
    end, llm = await stage.run(room, text("x"), deadline_seconds=90)
    assert (end, llm.requests) == ("failed", [])
    assert [cycle["error_kind"] for cycle in await stage.world.cycles(room)] == ["deadline"]


async def test_a_stop_is_obeyed_at_the_end_of_a_step_and_the_cycle_goes_on_elsewhere(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)

    async def drain() -> None:
        stage.draining.set()

    llm = FakeLlm([call(tell("once")), text("never")], before=drain)
    assert await (await stage.cycle(room, llm)).run() == "suspended"
    assert len(llm.requests) == 1
    state = await stage.world.state(room)
    assert state["lease_owner"] is None and state["wake_at"] <= datetime.now(UTC)
    stage.draining.clear()
    end, llm = await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    assert (end, len(llm.requests)) == ("succeeded", 2)
    assert [message["text"] for message in await stage.world.messages(room)] == ["once"]
    (row,) = await stage.world.cycles(room)
    assert (row["resumes"], row["steps"]) == (1, 3)


async def test_a_stop_ends_the_wait_for_a_provider_in_trouble_and_gives_the_cycle_back(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    asked = asyncio.Event()

    async def told() -> None:
        asked.set()

    gone = FakeLlm([DependencyUnavailable("llm", "connect")], before=told)
    cycle = asyncio.create_task((await stage.cycle(room, gone, provider_wait_seconds=600)).run())
    await asked.wait()
    stage.draining.set()
    async with asyncio.timeout(20):
        assert await cycle == "suspended"
    assert (await stage.world.state(room))["lease_owner"] is None
    stage.draining.clear()
    end, _ = await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    assert end == "succeeded"


async def test_a_call_cut_off_by_a_stop_is_not_recorded_and_made_again(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.sleep(60)

    cycle = await stage.cycle(room, FakeLlm([text("x")], before=hang))
    task = asyncio.create_task(cycle.run())
    await hanging.wait()
    task.cancel()
    await asyncio.wait({task})
    await cycle.give_back("released")
    (row,) = await stage.world.cycles(room)
    assert (row["status"], row["steps"], row["losses"]) == ("running", 0, 0)
    with pytest.raises(LeaseLost):
        await cycle.give_back("released")
    end, llm = await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    assert (end, len(llm.requests)) == ("succeeded", 2)


async def test_the_cycle_of_a_room_disabled_between_leases_is_abandoned_without_an_attempt(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    stage.draining.set()
    await stage.run(room, text("x"))

    async def stray() -> resuming.Swept | None:
        async with stage.database.transaction() as conn:
            return await resuming.sweep_stray(conn)

    assert await stray() is None
    await stage.world.query("update instance_room set enabled = false")
    swept = await stray()
    assert swept is not None and swept.ended == "disabled"
    assert await stray() is None
    assert [(event["status"], event["attempts"]) for event in await stage.world.events(room)] == [("pending", 0)]


async def test_a_running_cycle_that_nothing_wakes_is_woken(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    stage.draining.set()
    await stage.run(room, text("x"))
    await stage.world.query("update instance_room set wake_at = null")
    async with stage.database.transaction() as conn:
        swept = await resuming.sweep_stray(conn)
    assert swept is not None and swept.ended is None
    assert (await stage.world.state(room))["wake_at"] is not None


async def test_outside_calls_of_one_answer_run_at_the_same_time_and_fail_as_data(stage: Stage) -> None:
    bell = Recorder(before=asyncio.Event(), failure=ToolFailed("refused", "no bell here"))
    stage.outside = bell
    room = await stage.world.room()
    event = await stage.world.event(room)
    llm = FakeLlm([call(("ring", "{}"), ("ring", "{}"), mark(event)), text("NO_MESSAGE")])
    task = asyncio.create_task((await stage.cycle(room, llm)).run())
    while len(bell.rung) < 2:
        await asyncio.sleep(0.01)
    assert bell.before is not None
    bell.before.set()
    assert await task == "succeeded"
    results = [message for message in await stage.transcript(room) if message["role"] == "tool"]
    assert {message["tool_call_id"] for message in results} == {"call_0", "call_1", "call_2"}
    assert sum("no bell here" in str(message["content"]) for message in results) == 2
