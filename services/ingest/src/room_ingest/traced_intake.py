"""The intake where traces are exported: a span for each request, and one for its record on the way to Kafka.

A class of its own, so that a process without traces pays nothing for them on any request.
"""

from __future__ import annotations

import time
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from room_common.kafka.spans import send_span
from room_common.telemetry.tracing import HEADER, extract, failed, traceparent_for, tracer
from room_ingest.answers import Answer
from room_ingest.domain.request_headers import Kept
from room_ingest.exchange import Exchange
from room_ingest.intake import Intake, Sender

_ROUTES: Final = {"webhooks": "/webhooks/{token}", "channels": "/channels/{channel}/{token}"}
_METHODS: Final = {method.encode(): method for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")}
_NOT_SENT: Final = frozenset({"overflow", "unavailable"})


class RequestTrace:
    """The spans of a request with a record."""

    __slots__ = ("record", "request")

    def __init__(self, request: Span, record: Span) -> None:
        self.request = request
        self.record = record


class TracedIntake(Intake):
    """:class:`Intake` with spans. The target is never shown: it holds the token.

    Only a request whose record is published goes on with its sender's trace.
    """

    def _submit(self, exchange: Exchange, sender: Sender, query: bytes, kept: Kept) -> None:
        headers = () if kept.traceparent is None else ((HEADER, kept.traceparent),)
        request = self._begin(exchange, extract(headers))
        if request is not None:
            with trace.use_span(request):
                sent = send_span(sender.sink.topic, ())
            if sent is not None:
                exchange.trace = RequestTrace(request, sent[0])
                kept.traceparent = traceparent_for(sent[0]) or kept.traceparent
        super()._submit(exchange, sender, query, kept)

    def answered(self, exchange: Exchange, answer: Answer) -> None:
        super().answered(exchange, answer)
        spans: RequestTrace | None = getattr(exchange, "trace", None)
        if spans is not None:
            if answer.name in _NOT_SENT:
                failed(spans.record, answer.name)
            spans.record.end()
        request = self._begin(exchange, otel_context.Context()) if spans is None else spans.request
        if request is None:
            return
        request.set_attribute("http.response.status_code", answer.status)
        request.set_attribute("room.answer", answer.name)
        if answer.status >= 500:
            failed(request, str(answer.status))
        request.end()

    def _begin(self, exchange: Exchange, parent: otel_context.Context) -> Span | None:
        by = tracer()
        if by is None:
            return None
        method = _METHODS.get(exchange.method)
        attributes: dict[str, AttributeValue] = {
            "http.request.method": method or "_OTHER",
            "http.request.body.size": len(exchange.body),
            "network.protocol.version": exchange.version,
            "url.scheme": "http",
        }
        name, route = method or "HTTP", _ROUTES.get(exchange.route)
        if route is not None:
            name, attributes["http.route"] = f"{name} {route}", route
        began = time.time_ns() - int((self._now() - exchange.started) * 1e9) if exchange.started else None
        return by.start_span(name, parent, SpanKind.SERVER, attributes, start_time=began)
