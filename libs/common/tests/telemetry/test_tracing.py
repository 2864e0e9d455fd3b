from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from room_common.telemetry.tracing import (
    TraceParent,
    configure_tracing,
    extract,
    new_traceparent,
    parse_traceparent,
    trace_id_of,
    traceparent_now,
)

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_header_is_parsed() -> None:
    assert parse_traceparent(GOOD) == TraceParent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)
    assert trace_id_of((("x", b"1"), ("traceparent", GOOD))) == "0af7651916cd43dd8448eb211c80319c"
    assert trace_id_of((("traceparent", b"bad"),)) is None
    assert trace_id_of(()) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        GOOD[:-1],
        GOOD + b"-",
        GOOD + b"\n",
        GOOD.upper(),
        b"ff" + GOOD[2:],
        b"00-" + b"0" * 32 + GOOD[35:],
        GOOD[:36] + b"0" * 16 + GOOD[52:],
        GOOD.replace(b"-", b"_"),
    ],
)
def test_what_w3c_forbids_is_no_context(value: bytes | None) -> None:
    assert parse_traceparent(value) is None


def test_a_later_version_may_say_more() -> None:
    assert parse_traceparent(b"01" + GOOD[2:] + b"-more") is not None
    assert parse_traceparent(b"01" + GOOD[2:]) is not None


@given(st.binary(max_size=80))
def test_parsing_is_total(value: bytes) -> None:
    parse_traceparent(value)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.booleans())
def test_what_we_make_others_read(trace_id: bytes, span_id: bytes, sampled: bool) -> None:
    header = new_traceparent(trace_id, span_id, sampled=sampled)
    parsed = parse_traceparent(header)
    assert parsed is not None
    assert parsed.header() == header
    theirs = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": header.decode()}))
    assert trace.format_trace_id(theirs.get_span_context().trace_id) == parsed.trace_id
    assert theirs.get_span_context().trace_flags.sampled is sampled
    ours = trace.get_current_span(extract((("traceparent", header),)))
    assert ours.get_span_context() == theirs.get_span_context()


def test_what_is_remembered_is_the_current_span_or_what_came_in() -> None:
    assert traceparent_now() is None
    assert traceparent_now(GOOD.decode()) == GOOD.decode()
    assert traceparent_now("01" + GOOD[2:].decode() + "-more") == GOOD.decode()
    with trace.use_span(trace.get_current_span(extract((("traceparent", GOOD),)))):
        assert traceparent_now("other") == GOOD.decode()


@given(st.text())
def test_what_came_in_is_remembered_only_if_it_is_valid(text: str) -> None:
    kept = traceparent_now(text)
    assert kept is None or parse_traceparent(kept.encode()) is not None


def test_a_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        new_traceparent(b"1", b"2")


def test_without_an_endpoint_nothing_is_set_up() -> None:
    before = trace.get_tracer_provider()
    configure_tracing("x", "x-1", {})()
    configure_tracing("x", "x-1", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_SDK_DISABLED": "true"})()
    assert trace.get_tracer_provider() is before
