"""Traces: the SDK where an OTLP endpoint is configured, and W3C trace context in record headers and rows.

Off without an endpoint: :func:`span` then gives one shared object that does nothing. The provider is ours alone and not
the global one, so that no library writes spans of its own, with texts that Room must not show. A span never records an
exception, whose text may repeat a payload or a secret: only its bounded kind, as ``error.type``.

The header functions are total: whatever arrives from outside gives a trace context or None.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import AttributeValue

from room_common.errors import ConfigurationError, RoomError
from room_common.settings import from_environment
from room_common.telemetry.metrics import room_version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

HEADER = "traceparent"
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,200})?")
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16

MAX_LINKS: Final = 128
"""Links of one span, the SDK's own default; a batch with more of them links the first."""

_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

Attributes = Mapping[str, AttributeValue]


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


def context_of(traceparent: str | None) -> otel_context.Context:
    """The context to start a span in that continues what a row remembers, or empty."""
    return extract(trace_headers(traceparent))


def trace_headers(traceparent: str | None) -> tuple[tuple[str, bytes], ...]:
    """What a row remembers, as headers of a record."""
    return () if traceparent is None else ((HEADER, traceparent.encode("utf-8", "replace")),)


def traceparent_now(fallback: str | None = None) -> str | None:
    """The current span as a ``traceparent``; where there is none ``fallback``, what came in, if that is valid."""
    now = _as_text(trace.get_current_span())
    if now is not None or fallback is None:
        return now
    parsed = parse_traceparent(fallback.encode("utf-8", "replace"))
    return None if parsed is None else parsed.header().decode()


def traceparent_for(span: Span) -> bytes | None:
    """A span as a header value; None for one that was not started."""
    text = _as_text(span)
    return None if text is None else text.encode()


def _as_text(span: Span) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    flags = "01" if context.trace_flags.sampled else "00"
    return f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-{flags}"


# -- spans


class _Nothing(AbstractContextManager[Span]):
    """The span of a process that writes none."""

    def __enter__(self) -> Span:
        return trace.INVALID_SPAN

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING: Final = _Nothing()
_tracer: trace.Tracer | None = None


def tracer() -> trace.Tracer | None:
    """What starts spans in this process; None where nothing is traced."""
    return _tracer


def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    *,
    parent: otel_context.Context | None = None,
    links: Iterable[str | None] = (),
    attributes: Attributes | None = None,
    start_ns: int | None = None,
) -> AbstractContextManager[Span]:
    """A span around a block, current inside it. ``parent`` None: child of the current one.

    ``links`` are the ``traceparent`` of what else led here; what is none is left out. An error that leaves the block
    gives the span the status of an error and ``error.type``.
    """
    if _tracer is None:
        return _NOTHING
    return _started(_tracer, name, kind, parent, links, attributes, start_ns)


def annotate(name: str, value: AttributeValue) -> None:
    """Set an attribute of the current span, if there is one."""
    if _tracer is not None:
        trace.get_current_span().set_attribute(name, value)


def event(name: str, attributes: Attributes) -> None:
    """Note that something happened to the current span, if there is one."""
    if _tracer is not None:
        trace.get_current_span().add_event(name, attributes)


def failed(of: Span, kind: str) -> None:
    """Give a span the status of an error, under a bounded name."""
    of.set_attribute("error.type", kind)
    of.set_status(trace.StatusCode.ERROR)


def link_to(traceparent: str | None) -> trace.Link | None:
    """A link to what a ``traceparent`` names."""
    context = trace.get_current_span(context_of(traceparent)).get_span_context()
    return trace.Link(context) if context.is_valid else None


@contextmanager
def _started(
    by: trace.Tracer,
    name: str,
    kind: SpanKind,
    parent: otel_context.Context | None,
    links: Iterable[str | None],
    attributes: Attributes | None,
    start_ns: int | None,
) -> Iterator[Span]:
    found = [link for each in dict.fromkeys(links) if (link := link_to(each)) is not None]
    begun = by.start_span(
        name,
        parent,
        kind,
        attributes,
        found[:MAX_LINKS],
        start_ns,
        record_exception=False,
        set_status_on_exception=False,
    )
    try:
        with trace.use_span(begun, record_exception=False, set_status_on_exception=False):
            yield begun
    except (asyncio.CancelledError, GeneratorExit):
        begun.set_attribute("error.type", "cancelled")
        raise
    except BaseException as error:
        failed(begun, error_kind(error))
        raise
    finally:
        begun.end()


def error_kind(error: BaseException) -> str:
    """A bounded name for an error: the kind that Room's own ones have, else the class."""
    kind = getattr(error, "kind", None) or getattr(error, "reason", None)
    return kind if isinstance(error, RoomError) and isinstance(kind, str) else type(error).__name__


# -- setting up


def configure_tracing(service: str, instance: str, environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Export spans over OTLP/HTTP where ``OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT`` says so. Returns the flush at the end.

    Sampler, headers, time-outs and more come from the standard ``OTEL_*`` variables, which the SDK reads itself;
    ``OTEL_EXPORTER_OTLP_(TRACES_)HEADERS`` may be given as ``..._FILE``, since they may hold a key.
    """
    values = os.environ if environ is None else environ
    endpoint = values.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or values.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint or values.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return lambda: None
    # Imported here: the SDK and its exporter cost a service without traces a fifth of its start.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Bounded: a full queue (OTEL_BSP_MAX_QUEUE_SIZE) drops spans, and a thread of its own does the exporting.
    processor = BatchSpanProcessor(OTLPSpanExporter(headers=_secret_headers(values)))
    return trace_with(service, instance, processor, values)


def _secret_headers(values: Mapping[str, str]) -> Mapping[str, str] | None:
    """The exporter's headers where a file holds them; None leaves them to the SDK."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"):
        if not values.get(f"{name}_FILE"):
            continue
        try:
            text = from_environment(name, values) or ""
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from None
        return parse_env_headers(text, liberal=True)
    return None


def trace_with(
    service: str, instance: str, processor: SpanProcessor, environ: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """Hand every span of this process to ``processor``. Returns what flushes it and ends tracing."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    values = os.environ if environ is None else environ
    global _tracer
    attributes = {
        "service.name": values.get("OTEL_SERVICE_NAME") or f"room-{service}",
        "service.namespace": "room",
        "service.version": room_version(),
        "service.instance.id": instance,
    }
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    _tracer = provider.get_tracer("room", room_version(), schema_url=_SCHEMA_URL)

    def end() -> None:
        global _tracer
        _tracer = None
        provider.shutdown()

    return end
