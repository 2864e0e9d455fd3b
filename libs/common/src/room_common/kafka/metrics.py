"""Every figure the Kafka package exports, in one typed list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SEND_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class KafkaMetrics:
    """The instruments of producers and consumers. ``kafka_metrics`` makes them, once for each registry."""

    sent: Counter
    send_seconds: Histogram
    producer_recreations: Counter
    received: Counter
    completed: Counter
    handler_errors: Counter
    poisoned: Counter
    lag: Gauge
    progress: Gauge
    buffered: Gauge
    in_flight: Gauge
    span: Gauge
    oldest: Gauge
    last_poll: Gauge
    held: Gauge
    postponed: Gauge
    rebalances: Counter
    commits: Counter
    commit_errors: Counter
    offsets_lost: Counter
    client_recreations: Counter


def _build(registry: CollectorRegistry) -> KafkaMetrics:
    def counter(name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=registry)

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=registry)

    return KafkaMetrics(
        sent=counter(
            "room_producer_records_total", "Records handed to the producer, by what became of them.", "topic", "outcome"
        ),
        send_seconds=Histogram(
            "room_producer_send_seconds",
            "Seconds from handing over a record (or several) to the acknowledgement.",
            ("topic",),
            registry=registry,
            buckets=_SEND_BUCKETS,
        ),
        producer_recreations=counter(
            "room_producer_recreations_total", "Producer clients replaced because they could not go on.", "reason"
        ),
        received=counter("room_consumer_records_total", "Records received.", "topic", "group"),
        completed=counter("room_consumer_completed_total", "Records whose handling is complete.", "topic", "group"),
        handler_errors=counter(
            "room_consumer_handler_errors_total",
            "Attempts at a record that raised, by the error's class.",
            "group",
            "error",
        ),
        poisoned=counter(
            "room_consumer_poisoned_total", "Records given up after the last attempt and handed on as poison.", "group"
        ),
        lag=gauge(
            "room_consumer_lag_messages",
            "Records of a partition after the committed offset.",
            "topic",
            "partition",
            "group",
        ),
        progress=gauge(
            "room_consumer_progress_timestamp_seconds",
            "Unix time at which a record was last completed or a partition was seen without lag.",
            "topic",
            "partition",
            "group",
        ),
        buffered=gauge("room_consumer_buffered_records", "Records received and not yet completed.", "group"),
        in_flight=gauge("room_consumer_in_flight_records", "Records whose handler is running.", "group"),
        span=gauge(
            "room_consumer_span_offsets",
            "Largest distance from a partition's first unfinished record to its newest.",
            "group",
        ),
        oldest=gauge(
            "room_consumer_oldest_in_flight_seconds", "Age in this process of its oldest unfinished record.", "group"
        ),
        last_poll=gauge(
            "room_consumer_last_poll_timestamp_seconds", "Unix time of the last poll that returned.", "group"
        ),
        held=gauge("room_held", "1 while consumption waits for this reason.", "group", "reason"),
        postponed=gauge(
            "room_consumer_postponed_records", "Records that wait alone for this reason.", "group", "reason"
        ),
        rebalances=counter("room_consumer_rebalances_total", "Assignments received.", "group"),
        commits=counter("room_consumer_commits_total", "Offset commits that the broker accepted.", "group"),
        commit_errors=counter("room_consumer_commit_errors_total", "Offset commits that failed or timed out.", "group"),
        offsets_lost=counter(
            "room_consumer_offsets_lost_total",
            "Records that the broker deleted before this group had finished them.",
            "topic",
            "group",
        ),
        client_recreations=counter(
            "room_consumer_recreations_total", "Consumer clients replaced because they could not go on.", "group"
        ),
    )


_built: WeakKeyDictionary[CollectorRegistry, KafkaMetrics] = WeakKeyDictionary()


def kafka_metrics(registry: CollectorRegistry) -> KafkaMetrics:
    """The instruments registered in ``registry``; the same ones at every call."""
    metrics = _built.get(registry)
    if metrics is None:
        metrics = _built[registry] = _build(registry)
    return metrics
