"""Whole cycles on a real PostgreSQL, with a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from room_common import faults
from room_common.errors import DependencyUnavailable, LeaseLost
from room_common.llm import wire
from room_common.llm.port import ChatRequest, Completion, EventRejected
from room_common.postgres.database import Connection, Database
from room_common.telemetry.tracing import trace_with
from room_local.rehearsal.answers import answer as rehearsal_answer
from room_testing.running import events_in
from room_testing.staging import Answer, FakeLlm, Stage, call, mark, tell, text

pytestmark = pytest.mark.integration


async def test_a_good_cycle_leaves_everything_settled_and_a_transcript(stage: Stage) -> None:
    room = await stage.world.room(cooldown=60)
    first, second = await stage.world.event(room, age=10), await stage.world.event(room)
    await stage.world.reply(room, "What is new?")
    end, llm = await stage.run(room, call(tell("Ada won."), mark(first, second)), text("<think>x</think> NO_MESSAGE"))
    assert end == "succeeded"
    assert [row["status"] for row in await stage.world.events(room)] == ["completed", "completed"]
    (message,) = await stage.world.messages(room)
    assert (message["text"], message["status"], message["seq"]) == ("Ada won.", "queued", 1)
    (cycle,) = await stage.world.cycles(room)
    assert (cycle["status"], cycle["steps"], cycle["events"], cycle["replies"]) == ("succeeded", 2, 2, 1)
    assert (cycle["input_tokens"], cycle["output_tokens"], cycle["reason"]) == (200, 20, "reply")
    assert cycle["conversation_id"].startswith(f"room:{room.instance_id}:")
    (row,) = await stage.world.query("select tokens from token_usage where tier = 'standard'")
    assert row["tokens"] == 220
    assert [reply["status"] for reply in await stage.world.query("select status from room_inbox")] == ["read"]
    state = await stage.world.state(room)
    assert (state["lease_owner"], state["wake_at"], state["fails"], state["last_cycle_id"]) == (
        None,
        None,
        0,
        cycle["id"],
    )
    kinds = await stage.world.activity(room)
    assert kinds == ["cycle_started", "tool_called", "tool_called", "cycle_finished"]
    transcript = await stage.transcript(room)
    assert [message["role"] for message in transcript] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert list(llm.requests[-1].messages) == transcript[:-1]
    given = str(transcript[1]["content"])
    assert given.index(str(first)) < given.index(str(second)) < given.index("Human message\n")
    (definition,) = await stage.world.query("select cooling_until > now() as cooling from event_definitions")
    assert definition["cooling"]
    assert cycle["id"] in stage.written


async def test_a_cycle_continues_the_first_events_trace_and_links_what_else_led_to_it(stage: Stage) -> None:
    room = await stage.world.room()
    first, second = await stage.world.event(room, age=10), await stage.world.event(room)
    reply = await stage.world.reply(room, "What is new?")
    origins = [f"00-{digit * 32}-{digit * 16}-01" for digit in "1234"]
    for table, row, origin in zip(
        ("event_backlog", "event_backlog", "room_inbox"), (first, second, reply), origins, strict=False
    ):
        await stage.world.query(f"update {table} set traceparent = %s where id = %s", origin, row)
    await stage.world.query("update instance_room set woken_by = %s", origins[3])
    exporter = InMemorySpanExporter()
    end_tracing = trace_with("test", "test-1", SimpleSpanProcessor(exporter), {})
    try:
        await stage.run(room, call(tell("a"), mark(first, second)), text("NO_MESSAGE"))
    finally:
        end_tracing()
    (cycle,) = [span for span in exporter.get_finished_spans() if span.name == "invoke_agent room"]
    assert cycle.parent is not None and trace.format_span_id(cycle.parent.span_id) == "1" * 16
    assert [trace.format_span_id(link.context.span_id) for link in cycle.links] == [digit * 16 for digit in "234"]
    (tool,) = [span for span in exporter.get_finished_spans() if span.name == "execute_tool send_message_to_human"]
    (message,) = await stage.world.messages(room)
    assert tool.context is not None and message["traceparent"] == (
        f"00-{'1' * 32}-{trace.format_span_id(tool.context.span_id)}-01"
    )


async def test_the_final_text_is_the_message_when_none_was_sent(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    await stage.run(room, call(mark(event)), text("Ada won."))
    assert [message["text"] for message in await stage.world.messages(room)] == ["Ada won."]


async def test_a_room_without_channel_keeps_it_in_the_transcript(stage: Stage) -> None:
    room = await stage.world.room(channel=None)
    event = await stage.world.event(room)
    end, _ = await stage.run(room, call(tell("a")), call(mark(event)), text("Ada won."))
    assert end == "succeeded"
    assert await stage.world.messages(room) == []
    assert "has no channel" in str((await stage.transcript(room))[3]["content"])


async def test_bad_calls_are_answered_as_data_and_the_cycle_goes_on(stage: Stage) -> None:
    room, other = await stage.world.room(), await stage.world.room()
    event, foreign = await stage.world.event(room), await stage.world.event(other)
    bad = call(("rm", "{}"), ("defer_event", "{"), mark(foreign), ("defer_event", f'{{"event_id": "{foreign}", '
               '"minutes": 5, "reason": "x"}'), mark(event))  # fmt: skip
    end, _ = await stage.run(room, bad, text("NO_MESSAGE"))
    assert end == "succeeded"
    results = [str(message["content"]) for message in await stage.transcript(room) if message["role"] == "tool"]
    assert ["error" in results[0], "error" in results[1], results[4]] == [True, True, '{"completed":1}']
    assert '"completed":0' in results[2] and "not an open event" in results[3]
    assert [row["status"] for row in await stage.world.events(other)] == ["pending"]


async def test_a_deferred_event_waits_without_an_attempt_and_at_most_so_often(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    defer = call(("defer_event", f'{{"event_id": "{event}", "minutes": 60, "reason": "no answer yet"}}'))
    await stage.run(room, defer, text("NO_MESSAGE"), max_deferrals=1)
    (row,) = await stage.world.events(room)
    assert (row["status"], row["attempts"], row["deferrals"], row["notes"]) == ("pending", 0, 1, "no answer yet")
    assert row["next_attempt_at"] > datetime.now(UTC) + timedelta(minutes=59)
    await stage.world.query("update event_backlog set next_attempt_at = now()")
    _, llm = await stage.run(room, defer, call(mark(event)), text("NO_MESSAGE"), max_deferrals=1)
    assert "1 times; decide now" in str(llm.requests[1].messages[-1]["content"])
    given = str(llm.requests[0].messages[1]["content"])
    assert "Offered before: 0 failed attempt(s), 1 deferral(s)" in given
    assert "# Done before" in given and "defer_event" in given.partition("# Done before")[2]


async def test_unmarked_events_are_asked_for_once_and_then_an_attempt(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    end, llm = await stage.run(room, text("Done!"))
    assert end == "succeeded"
    assert len(llm.requests) == 2
    assert str(event) in str(llm.requests[1].messages[-1]["content"])
    (row,) = await stage.world.events(room)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert "without a decision" in row["notes"]


async def test_an_event_out_of_attempts_is_failed_and_shown(stage: Stage) -> None:
    room = await stage.world.room()
    lonely = await stage.world.event(room, attempts=4, age=10)
    await stage.world.event(room)
    _, llm = await stage.run(room, text("Done!"))
    assert events_in(llm.requests[0].messages) == [str(lonely)]
    assert [row["status"] for row in await stage.world.events(room)] == ["failed", "pending"]
    assert "event_failed" in await stage.world.activity(room)
    assert (await stage.world.state(room))["wake_at"] is not None


@pytest.mark.parametrize(
    ("answers", "settings", "kind"),
    [
        ([EventRejected("context_length", 400)], {}, "context_length"),
        ([call(tell("again"))], {"max_steps": 3}, "step_limit"),
        ([RuntimeError("boom")], {}, "unforeseen"),
    ],
)
async def test_a_failure_of_its_own_is_an_attempt_and_parks_the_room_in_the_end(
    stage: Stage, answers: Sequence[Answer], settings: dict[str, Any], kind: str
) -> None:
    room = await stage.world.room()
    await stage.world.event(room)
    await stage.world.reply(room)
    end, _ = await stage.run(room, *answers, **settings)
    assert end == "failed"
    (cycle,) = await stage.world.cycles(room)
    assert (cycle["status"], cycle["error_kind"]) == ("failed", kind)
    (event,) = await stage.world.events(room)
    assert (event["status"], event["attempts"]) == ("pending", 1)
    (reply,) = await stage.world.query("select status, attempts from room_inbox")
    assert reply == {"status": "unread", "attempts": 1}
    state = await stage.world.state(room)
    assert state["fails"] == 1 and state["next_try_at"] > datetime.now(UTC) and state["parked_reason"] is None
    await stage.world.query("update instance_room set fails = 4, next_try_at = null")
    await stage.run(room, *answers, **settings)
    state = await stage.world.state(room)
    assert (state["fails"], state["parked_reason"]) == (5, kind)
    assert (await stage.world.activity(room))[-1] == "room_parked"


async def test_a_success_resets_the_count(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    await stage.world.query("update instance_room set fails = 4")
    await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    assert (await stage.world.state(room))["fails"] == 0


async def test_a_cycle_past_its_deadline_fails(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)

    async def hang() -> None:
        await asyncio.sleep(60)

    cycle = await stage.cycle(room, FakeLlm([text("x")], before=hang), deadline_seconds=0.3)
    assert await cycle.run() == "failed"
    assert (await stage.world.cycles(room))[0]["error_kind"] == "deadline"


async def test_provider_trouble_costs_nothing_and_the_cycle_goes_on_where_it_was(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    await stage.world.reply(room)
    end, _ = await stage.run(
        room, call(tell("first")), DependencyUnavailable("llm", "server_error"), provider_wait_seconds=0.1
    )
    assert end == "suspended"
    (row,) = await stage.world.events(room)
    assert (row["id"], row["status"], row["attempts"]) == (event, "processing", 0)
    state = await stage.world.state(room)
    assert (state["fails"], state["lease_owner"]) == (0, None)
    assert state["wake_at"] is not None
    await stage.world.reply(room, "And now?")  # waits for the next cycle
    end, llm = await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    assert (end, len(llm.requests)) == ("succeeded", 2)
    assert [message["text"] for message in await stage.world.messages(room)] == ["first"]
    assert "And now?" not in str(llm.requests[-1].messages)
    (cycle,) = await stage.world.cycles(room)
    assert (cycle["status"], cycle["steps"], cycle["resumes"], cycle["losses"]) == ("succeeded", 3, 1, 0)
    replies = await stage.world.query("select status from room_inbox order by received_at")
    assert [reply["status"] for reply in replies] == ["read", "unread"]


async def test_what_was_done_about_a_reply_is_told_to_the_next_cycle(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.reply(room)
    await stage.run(room, call(tell("first")), EventRejected("refused"))
    await stage.world.query("update instance_room set next_try_at = null")
    _, llm = await stage.run(room, text("NO_MESSAGE"))
    assert "first" in str(llm.requests[0].messages[1]["content"]).partition("# Done before")[2]


async def test_a_provider_that_reports_no_usage_is_estimated(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    await stage.run(room, Completion("", call(mark(event)).tool_calls), Completion("NO_MESSAGE"))
    (row,) = await stage.world.query("select tokens from token_usage")
    assert row["tokens"] > 1000


async def test_trouble_that_passes_is_waited_for(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    llm = FakeLlm([DependencyUnavailable("llm", "connect"), call(mark(event)), text("NO_MESSAGE")])
    cycle = await stage.cycle(room, llm)
    provider = cycle._desk.provider
    await provider.start()
    try:
        assert await cycle.run() == "succeeded"
    finally:
        await provider.stop()
    assert provider.closed


async def test_a_spent_budget_puts_the_room_to_sleep_until_its_midnight(stage: Stage) -> None:
    room = await stage.world.room(budget=5_700)
    await stage.world.event(room)
    await stage.world.query(
        "insert into token_usage select id, (now() at time zone timezone)::date, 'fast', 4000 from instances"
    )
    costly = Completion("", call(tell("one")).tool_calls, input_tokens=900)
    end, llm = await stage.run(room, costly, text("never asked"))
    assert (end, len(llm.requests)) == ("abandoned", 1)
    assert (await stage.world.cycles(room))[0]["error_kind"] == "budget_exhausted"
    (row,) = await stage.world.query(
        "select r.next_try_at = ((now() at time zone 'Europe/Rome')::date + 1)::timestamp at time zone 'Europe/Rome'"
        " as midnight, r.fails from instance_room r"
    )
    assert row == {"midnight": True, "fails": 0}
    assert (await stage.world.events(room))[0]["attempts"] == 0
    assert (await stage.world.activity(room)).count("budget_exhausted") == 1


async def test_nothing_begins_on_a_spent_budget(stage: Stage) -> None:
    room = await stage.world.room(budget=0)
    await stage.world.event(room)
    end, llm = await stage.run(room, text("x"))
    assert (end, llm.requests, await stage.world.cycles(room)) == ("nothing", [], [])
    assert await stage.world.activity(room) == ["budget_exhausted"]


async def test_nothing_to_do_makes_no_cycle_and_no_call(stage: Stage) -> None:
    room = await stage.world.room()
    end, llm = await stage.run(room, text("x"))
    assert (end, llm.requests, await stage.world.cycles(room)) == ("nothing", [], [])
    assert (await stage.world.state(room))["lease_owner"] is None


async def test_a_room_disabled_meanwhile_stops_at_the_next_step_without_an_attempt(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)

    async def disable() -> None:
        await stage.world.query("update instance_room set enabled = false")

    cycle = await stage.cycle(room, FakeLlm([call(tell("a")), call(mark(event))], before=disable))
    assert await cycle.run() == "abandoned"
    assert (await stage.world.events(room))[0]["attempts"] == 0


async def test_what_exceeds_the_limits_waits_and_wakes_the_room_again(stage: Stage) -> None:
    room = await stage.world.room(interpretation="Look.")
    bodies = [b'{"a": "' + b"x" * 20_000 + b'"}'] * 3
    ids = [await stage.world.event(room, body, age=10 - number) for number, body in enumerate(bodies)]
    end, llm = await stage.run(room, call(mark(*ids)), text("NO_MESSAGE"), prompt_tokens=15_000)
    assert end == "succeeded"
    assert events_in(llm.requests[0].messages) == [str(event) for event in ids[:2]]
    assert (await stage.world.state(room))["wake_at"] is not None
    _, llm = await stage.run(room, call(mark(*ids)), text("NO_MESSAGE"), prompt_tokens=1_000)
    assert events_in(llm.requests[0].messages) == [str(ids[2])]
    assert "[cut: " in str(llm.requests[0].messages[1]["content"])


async def test_what_a_model_writes_is_made_storable(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room, b'{"name": "a\\u0000\\ud83d"}')
    end, _ = await stage.run(room, call(("n\x00", '{"a": "\x00"}'), mark(event)), text("done\x00"))
    assert end == "succeeded"
    assert [message["text"] for message in await stage.world.messages(room)] == ["done�"]


async def test_a_lost_lease_stops_the_cycle_with_nothing_more_written(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room)

    async def lose() -> None:
        await stage.world.query("update instance_room set lease_epoch = lease_epoch + 1")

    cycle = await stage.cycle(room, FakeLlm([call(tell("a"))], before=lose))
    with pytest.raises(LeaseLost):
        await cycle.run()
    assert await stage.world.messages(room) == []
    assert len(await stage.transcript(room)) == 2


class LosesAnswers(Database):
    """A database whose commits succeed without telling, from the ``first`` transaction on, ``count`` times."""

    first = 0
    count = 0
    seen = 0

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[Connection]:
        async with super().transaction(timeout) as conn:
            yield conn
        self.seen += 1
        if self.first <= self.seen < self.first + self.count:
            raise DependencyUnavailable("postgresql", "connect")


@pytest.mark.parametrize("first", range(1, 12))
async def test_a_commit_without_an_answer_is_looked_up_and_not_repeated(
    stage: Stage, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("room_runner.writing._FIRST_PAUSE", 0.01)
    room = await stage.world.room()
    event = await stage.world.event(room)
    cycle = await stage.cycle(room, FakeLlm([call(tell("once"), mark(event)), text("NO_MESSAGE")]))
    stage.database.__class__ = LosesAnswers
    assert isinstance(stage.database, LosesAnswers)
    stage.database.first, stage.database.count = first, 1
    assert await cycle.run() == "succeeded"
    assert [message["text"] for message in await stage.world.messages(room)] == ["once"]
    assert [row["status"] for row in await stage.world.events(room)] == ["completed"]
    assert [row["status"] for row in await stage.world.cycles(room)] == ["succeeded"]
    kinds = await stage.world.activity(room)
    assert kinds == ["cycle_started", "tool_called", "tool_called", "cycle_finished"]
    (usage,) = await stage.world.query("select tokens from token_usage")
    assert usage["tokens"] == 220
    assert len(await stage.transcript(room)) == 6


class RehearsalLlm:
    """The rehearsal model without its server."""

    async def complete(self, request: ChatRequest) -> Completion:
        body = {"model": "rehearsal-standard", "messages": list(request.messages), "tools": list(request.tools)}
        return wire.completion(rehearsal_answer(body, created=0).body, "rehearsal-standard")


async def test_the_rehearsal_model_gets_through_a_cycle(stage: Stage) -> None:
    room = await stage.world.room()
    await stage.world.event(room, b'{"name": "Ada", "status": "won"}')
    await stage.world.reply(room, "Anything new?")
    assert await (await stage.cycle(room, RehearsalLlm())).run() == "succeeded"
    (message,) = await stage.world.messages(room)
    assert "name: Ada" in message["text"] and "Anything new?" in message["text"]
    assert [event["status"] for event in await stage.world.events(room)] == ["completed"]


async def test_crash_points_are_passed_in_order(stage: Stage) -> None:
    room = await stage.world.room()
    event = await stage.world.event(room)
    passed: list[str] = []
    faults.arm(passed.append)
    try:
        await stage.run(room, call(mark(event)), text("NO_MESSAGE"))
    finally:
        faults.arm(lambda name: None)
    assert [name for name in passed if "look" not in name] == [
        *("runner.before_open_commit", "runner.after_open_commit"),
        *("runner.after_llm", "runner.before_step_commit", "runner.after_step_commit"),
        *("runner.before_tool_commit", "runner.after_tool_commit", "runner.after_tool"),
        *("runner.after_llm", "runner.before_step_commit", "runner.after_step_commit"),
        *("runner.before_finish_commit", "runner.after_finish_commit"),
    ]
