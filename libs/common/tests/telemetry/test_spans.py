"""What Room writes into spans, and what it leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from room_common.errors import DeadLetter, DependencyUnavailable, Refused
from room_common.kafka.records import Headers, Record
from room_common.kafka.spans import process_batch_span, process_span, send_span
from room_common.llm.port import ChatRequest, Completion
from room_common.llm.spans import chat_span, tell
from room_common.telemetry.tracing import (
    HEADER,
    MAX_LINKS,
    annotate,
    context_of,
    event,
    span,
    trace_with,
    traceparent_now,
    traceparent_of,
    tracer,
)

ONE = f"00-{'1a' * 16}-{'1b' * 8}-01"
TWO = f"00-{'2a' * 16}-{'2b' * 8}-01"
UNSAMPLED = f"00-{'3a' * 16}-{'3b' * 8}-00"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    end = trace_with("test", "test-1", SimpleSpanProcessor(exporter), {})
    yield exporter
    end()


def only(exported: InMemorySpanExporter) -> ReadableSpan:
    (found,) = exported.get_finished_spans()
    return found


def record(traceparent: str | None, topic: str = "room.ticks") -> Record:
    headers: Headers = () if traceparent is None else ((HEADER, traceparent.encode()),)
    return Record(topic, 3, 7, 0, b"somebody", b"payload", headers)


def parent_of(found: ReadableSpan) -> str | None:
    return None if found.parent is None else trace.format_span_id(found.parent.span_id)


def test_without_an_exporter_there_are_no_spans() -> None:
    assert tracer() is None
    with span("x", links=[ONE]) as first, span("y") as second:
        first.set_attribute("a", 1)
        annotate("b", 2)
        event("c", {})
        assert first is second is trace.INVALID_SPAN
        assert traceparent_now() is None
    assert send_span("room.ticks", ()) is None
    for nothing in (process_span(record(ONE), "g"), process_batch_span([record(ONE)], "g"), chat_span(CHAT, "m", "h")):
        assert nothing is span("z")


def test_a_span_continues_what_a_row_remembers_and_links_the_rest(exported: InMemorySpanExporter) -> None:
    with span("x", parent=context_of(ONE), links=[TWO, None, TWO, "nonsense"]):
        remembered = traceparent_now()
    found = only(exported)
    assert parent_of(found) == "1b" * 8
    assert [trace.format_span_id(link.context.span_id) for link in found.links] == ["2b" * 8]
    assert remembered is not None and remembered.startswith("00-" + "1a" * 16)


def test_a_batch_links_so_many_and_no_more(exported: InMemorySpanExporter) -> None:
    with span("x", links=[f"00-{'1a' * 16}-{number:016x}-01" for number in range(1, MAX_LINKS + 3)]):
        pass
    assert [link.context.span_id for link in only(exported).links] == list(range(1, MAX_LINKS + 1))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DependencyUnavailable("llm", "timeout"), "timeout"),
        (DeadLetter("too_large"), "too_large"),
        (Refused("bad_url", "text with a secret"), "bad_url"),
        (ValueError("text with a secret"), "ValueError"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_of_an_error_only_its_kind_is_told(exported: InMemorySpanExporter, error: BaseException, kind: str) -> None:
    with pytest.raises(type(error)), span("x"):
        raise error
    found = only(exported)
    assert found.attributes is not None and found.attributes["error.type"] == kind
    assert not found.events and "secret" not in found.to_json()


def test_what_is_not_sampled_stays_so(exported: InMemorySpanExporter) -> None:
    with span("x", parent=context_of(UNSAMPLED)):
        remembered = traceparent_now()
    assert remembered is not None and remembered.endswith("-00") and not exported.get_finished_spans()


def test_a_record_carries_the_span_of_its_sending(exported: InMemorySpanExporter) -> None:
    with span("outer"):
        sent = send_span("room.ticks", (("a", b"1"), (HEADER, TWO.encode())))
    assert sent is not None
    sent[0].end()
    assert [name for name, _ in sent[1]] == ["a", HEADER]
    carried = traceparent_of(sent[1])
    outer, sending = sorted(exported.get_finished_spans(), key=lambda each: each.name)
    assert carried is not None and sending.context is not None and outer.context is not None
    assert carried.span_id == trace.format_span_id(sending.context.span_id)
    assert parent_of(sending) == trace.format_span_id(outer.context.span_id)
    assert sending.name == "send room.ticks" and sending.kind is trace.SpanKind.PRODUCER


def test_where_no_span_is_current_sending_continues_the_record(exported: InMemorySpanExporter) -> None:
    sent = send_span("room.ticks", ((HEADER, TWO.encode()),))
    assert sent is not None
    sent[0].end()
    assert parent_of(only(exported)) == "2b" * 8


def test_one_record_is_a_child_and_several_are_linked(exported: InMemorySpanExporter) -> None:
    with process_span(record(ONE), "group"):
        pass
    with process_batch_span([record(TWO)], "group"):
        pass
    with span("outer"), process_batch_span([record(ONE), record(TWO), record(None)], "group"):
        pass
    single, alone, batch, _ = exported.get_finished_spans()
    assert (parent_of(single), parent_of(alone), parent_of(batch)) == ("1b" * 8, "2b" * 8, None)
    assert [trace.format_span_id(link.context.span_id) for link in batch.links] == ["1b" * 8, "2b" * 8]
    assert batch.attributes is not None and batch.attributes["messaging.batch.message_count"] == 3
    assert dict(single.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "room.ticks",
        "messaging.destination.partition.id": "3",
        "messaging.consumer.group.name": "group",
        "messaging.kafka.offset": 7,
        "messaging.message.body.size": 7,
    }
    assert "somebody" not in single.to_json() and "payload" not in single.to_json()


CHAT = ChatRequest(tier="fast", messages=({"role": "user", "content": "prompt"},), max_output_tokens=9)


@pytest.mark.parametrize(("at", "port"), [("model.example:8443", 8443), ("model.example", None)])
def test_a_model_call_tells_its_cost_and_not_its_words(
    exported: InMemorySpanExporter, at: str, port: int | None
) -> None:
    with chat_span(CHAT, "gpt", at) as call:
        tell(call, Completion("answer", input_tokens=5, output_tokens=2, cached_tokens=1, model="gpt-1"))
    found = only(exported)
    assert found.name == "chat gpt" and found.kind is trace.SpanKind.CLIENT
    told = dict(found.attributes or {})
    assert told["server.address"] == "model.example" and told.get("server.port") == port
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "gpt")
    assert (told["gen_ai.response.model"], told["gen_ai.response.finish_reasons"]) == ("gpt-1", ("stop",))
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (5, 2)
    assert "prompt" not in found.to_json() and "answer" not in found.to_json()
