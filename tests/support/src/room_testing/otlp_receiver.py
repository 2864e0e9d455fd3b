"""A peer that takes traces as a collector does: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from room_testing.fake_peer import FakePeer

KINDS = {
    trace_pb2.Span.SPAN_KIND_INTERNAL: "internal",
    trace_pb2.Span.SPAN_KIND_SERVER: "server",
    trace_pb2.Span.SPAN_KIND_CLIENT: "client",
    trace_pb2.Span.SPAN_KIND_PRODUCER: "producer",
    trace_pb2.Span.SPAN_KIND_CONSUMER: "consumer",
}


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it arrived. Ids are lower-case hex; ``links`` are pairs of trace id and span id."""

    service: str
    name: str
    kind: str
    trace_id: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: Mapping[str, Any]
    error: bool
    events: tuple[str, ...]


class OtlpReceiver(FakePeer):
    """Keeps the spans it is sent in ``accepted``."""

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        if request.path != "/v1/traces" or request.content_type != "application/x-protobuf":
            return web.Response(status=404)
        if body[:2] == b"\x1f\x8b":  # a collector sends it compressed; aiohttp inflates what says so
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.accepted += [_span(service, span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    def paths(self, trace_id: str) -> set[tuple[str, ...]]:
        """Every span of a trace as the names from its root to itself. A parent that did not arrive is ``?``."""
        spans = {span.id: span for span in self.accepted if span.trace_id == trace_id}

        def names(span: ReceivedSpan) -> tuple[str, ...]:
            if not span.parent:
                return (span.name,)
            parent = spans.get(span.parent)
            return (*(names(parent) if parent is not None else ("?",)), span.name)

        return {names(span) for span in spans.values()}

    def named(self, name: str, trace_id: str | None = None) -> list[ReceivedSpan]:
        """The spans of that name, of one trace or of all."""
        return [span for span in self.accepted if span.name == name and trace_id in (None, span.trace_id)]


def _span(service: str, span: trace_pb2.Span) -> ReceivedSpan:
    return ReceivedSpan(
        service,
        span.name,
        KINDS[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _attributes(span.attributes),
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        tuple(event.name for event in span.events),
    )


def _attributes(pairs: Sequence[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which is None:
        return None
    found = getattr(value, which)
    return [_value(item) for item in found.values] if which == "array_value" else found
