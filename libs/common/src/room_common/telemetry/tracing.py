"""Traces: the SDK where an OTLP endpoint is configured, and W3C trace context in record headers.

The header functions are total: whatever arrives from outside gives a trace context or None.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry import context as otel_context
from opentelemetry import trace

from room_common.telemetry.metrics import room_version

HEADER = "traceparent"
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,200})?")
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A parsed ``traceparent``: ids in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool

    def header(self) -> bytes:
        """As a header value, version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}".encode()


def new_traceparent(trace_id: bytes, span_id: bytes, *, sampled: bool = True) -> bytes:
    """The header value for 16 random bytes of trace id and 8 of span id. All zeros, which W3C forbids, count as one."""
    if len(trace_id) != 16 or len(span_id) != 8:
        raise ValueError("a trace id has 16 bytes, a span id 8")
    trace_hex = trace_id.hex() if any(trace_id) else "1".zfill(32)
    span_hex = span_id.hex() if any(span_id) else "1".zfill(16)
    return TraceParent(trace_hex, span_hex, sampled).header()


def parse_traceparent(value: bytes | None) -> TraceParent | None:
    """What W3C Trace Context level 2 accepts, else None."""
    found = _TRACEPARENT.fullmatch(value) if value else None
    if found is None or found[2] == _NO_TRACE or found[3] == _NO_SPAN or (found[1] == b"00" and found[5]):
        return None
    return TraceParent(found[2].decode(), found[3].decode(), bool(int(found[4], 16) & 1))


def traceparent_of(headers: Sequence[tuple[str, bytes]]) -> TraceParent | None:
    """The trace context among record headers; the first valid one counts."""
    return next((parsed for name, value in headers if name == HEADER and (parsed := parse_traceparent(value))), None)


def trace_id_of(headers: Sequence[tuple[str, bytes]]) -> str | None:
    """The trace id among record headers, 32 hex digits."""
    parent = traceparent_of(headers)
    return None if parent is None else parent.trace_id


def extract(headers: Sequence[tuple[str, bytes]]) -> otel_context.Context:
    """The context to start a span in: child of the record's trace, or empty."""
    parent = traceparent_of(headers)
    if parent is None:
        return otel_context.Context()
    remote = trace.SpanContext(
        trace_id=int(parent.trace_id, 16),
        span_id=int(parent.span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED if parent.sampled else trace.TraceFlags.DEFAULT),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(remote), otel_context.Context())


def inject(fallback: bytes | None = None) -> bytes | None:
    """The header value of the current span; ``fallback`` (the incoming header) where there is none."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return fallback
    return TraceParent(
        trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id), context.trace_flags.sampled
    ).header()


def configure_tracing(service: str, instance: str, environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Export spans over OTLP/HTTP where ``OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT`` says so. Returns the flush at the end.

    Sampler, headers, time-outs and more come from the standard ``OTEL_*`` variables, which the SDK reads itself.
    """
    values = os.environ if environ is None else environ
    endpoint = values.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or values.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint or values.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return lambda: None
    # Imported here: the SDK and its exporter cost a service without traces a fifth of its start.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    attributes = {
        "service.name": values.get("OTEL_SERVICE_NAME") or f"room-{service}",
        "service.namespace": "room",
        "service.version": room_version(),
        "service.instance.id": instance,
    }
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown
