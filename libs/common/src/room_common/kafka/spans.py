"""Spans of sending and handling Kafka records, named as the messaging conventions of OpenTelemetry 1.44 say.

The span of one record is a child of what sent it, which the conventions allow and which keeps a delivery one trace. A
batch of several belongs to nobody: its span links to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from room_common.kafka.records import Headers, Record
from room_common.telemetry.tracing import (
    HEADER,
    Attributes,
    extract,
    span,
    traceparent_for,
    traceparent_of,
    tracer,
)


def send_span(topic: str, headers: Headers) -> tuple[Span, Headers] | None:
    """The span of one record that is about to be sent, and its headers with that span; None where nothing is traced.

    A child of the current span, else of what the headers name. Whoever sends ends it.
    """
    by = tracer()
    if by is None:
        return None
    current = trace.get_current_span().get_span_context().is_valid
    sent = by.start_span(
        f"send {topic}",
        otel_context.get_current() if current else extract(headers),
        SpanKind.PRODUCER,
        _of_topic("send", topic),
    )
    header = traceparent_for(sent)
    others = tuple(pair for pair in headers if pair[0] != HEADER)
    return sent, others if header is None else (*others, (HEADER, header))


def process_span(record: Record, group: str) -> AbstractContextManager[Span]:
    """The handling of one record, as a child of what sent it."""
    if tracer() is None:
        return span("")
    attributes = {
        **_of_topic("process", record.topic),
        "messaging.consumer.group.name": group,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
        "messaging.message.body.size": len(record.value or b""),
    }
    return span(f"process {record.topic}", SpanKind.CONSUMER, parent=extract(record.headers), attributes=attributes)


def process_batch_span(records: Sequence[Record], group: str) -> AbstractContextManager[Span]:
    """The handling of several records at once; of a single one as :func:`process_span`."""
    if tracer() is None:
        return span("")
    if len(records) == 1:
        return process_span(records[0], group)
    topic = records[0].topic
    attributes = {
        **_of_topic("process", topic),
        "messaging.consumer.group.name": group,
        "messaging.batch.message_count": len(records),
    }
    parents = (traceparent_of(record.headers) for record in records)
    links = (None if parent is None else parent.header().decode() for parent in parents)
    return span(
        f"process {topic}", SpanKind.CONSUMER, parent=otel_context.Context(), links=links, attributes=attributes
    )


def _of_topic(operation: str, topic: str) -> Attributes:
    """Without the record's key, which of outbound records names a person."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
