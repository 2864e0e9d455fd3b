"""What producers and consumers export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from room_common.telemetry.metrics import DEPENDENCY_UP, Metric, counter, define, gauge, histogram

_SEND_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


SENT: Final = define(
    Metric(
        "room_producer_records_total",
        "counter",
        "Records handed to the producer, by what became of them.",
        ("topic", "outcome"),
    )
)
SEND_SECONDS: Final = define(
    Metric(
        "room_producer_send_seconds",
        "histogram",
        "Seconds from handing over a record (or several) to the acknowledgement.",
        ("topic",),
        _SEND_BUCKETS,
    )
)
PRODUCER_RECREATIONS: Final = define(
    Metric(
        "room_producer_recreations_total",
        "counter",
        "Producer clients replaced because they could not go on.",
        ("reason",),
    )
)
RECEIVED: Final = define(Metric("room_consumer_records_total", "counter", "Records received.", ("topic", "group")))
COMPLETED: Final = define(
    Metric("room_consumer_completed_total", "counter", "Records whose handling is complete.", ("topic", "group"))
)
HANDLER_ERRORS: Final = define(
    Metric(
        "room_consumer_handler_errors_total",
        "counter",
        "Attempts at a record that raised, by the error's class.",
        ("group", "error"),
    )
)
POISONED: Final = define(
    Metric(
        "room_consumer_poisoned_total",
        "counter",
        "Records given up after the last attempt and handed on as poison.",
        ("group",),
    )
)
LAG: Final = define(
    Metric(
        "room_consumer_lag_messages",
        "gauge",
        "Records of a partition after the committed offset.",
        ("topic", "partition", "group"),
    )
)
PROGRESS: Final = define(
    Metric(
        "room_consumer_progress_timestamp_seconds",
        "gauge",
        "Unix time at which a record was last completed or a partition was seen without lag.",
        ("topic", "partition", "group"),
    )
)
BUFFERED: Final = define(
    Metric("room_consumer_buffered_records", "gauge", "Records received and not yet completed.", ("group",))
)
IN_FLIGHT: Final = define(
    Metric("room_consumer_in_flight_records", "gauge", "Records whose handler is running.", ("group",))
)
SPAN: Final = define(
    Metric(
        "room_consumer_span_offsets",
        "gauge",
        "Largest distance from a partition's first unfinished record to its newest.",
        ("group",),
    )
)
OLDEST: Final = define(
    Metric(
        "room_consumer_oldest_in_flight_seconds",
        "gauge",
        "Age in this process of its oldest unfinished record.",
        ("group",),
    )
)
LAST_POLL: Final = define(
    Metric(
        "room_consumer_last_poll_timestamp_seconds", "gauge", "Unix time of the last poll that returned.", ("group",)
    )
)
HELD: Final = define(Metric("room_held", "gauge", "1 while consumption waits for this reason.", ("group", "reason")))
POSTPONED: Final = define(
    Metric("room_consumer_postponed_records", "gauge", "Records that wait alone for this reason.", ("group", "reason"))
)
REBALANCES: Final = define(Metric("room_consumer_rebalances_total", "counter", "Assignments received.", ("group",)))
COMMITS: Final = define(
    Metric("room_consumer_commits_total", "counter", "Offset commits that the broker accepted.", ("group",))
)
COMMIT_ERRORS: Final = define(
    Metric("room_consumer_commit_errors_total", "counter", "Offset commits that failed or timed out.", ("group",))
)
OFFSETS_LOST: Final = define(
    Metric(
        "room_consumer_offsets_lost_total",
        "counter",
        "Records that the broker deleted before this group had finished them.",
        ("topic", "group"),
    )
)
CLIENT_RECREATIONS: Final = define(
    Metric(
        "room_consumer_recreations_total",
        "counter",
        "Consumer clients replaced because they could not go on.",
        ("group",),
    )
)


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
    up: Gauge


def _build(registry: CollectorRegistry) -> KafkaMetrics:
    return KafkaMetrics(
        sent=counter(registry, SENT),
        send_seconds=histogram(registry, SEND_SECONDS),
        producer_recreations=counter(registry, PRODUCER_RECREATIONS),
        received=counter(registry, RECEIVED),
        completed=counter(registry, COMPLETED),
        handler_errors=counter(registry, HANDLER_ERRORS),
        poisoned=counter(registry, POISONED),
        lag=gauge(registry, LAG),
        progress=gauge(registry, PROGRESS),
        buffered=gauge(registry, BUFFERED),
        in_flight=gauge(registry, IN_FLIGHT),
        span=gauge(registry, SPAN),
        oldest=gauge(registry, OLDEST),
        last_poll=gauge(registry, LAST_POLL),
        held=gauge(registry, HELD),
        postponed=gauge(registry, POSTPONED),
        rebalances=counter(registry, REBALANCES),
        commits=counter(registry, COMMITS),
        commit_errors=counter(registry, COMMIT_ERRORS),
        offsets_lost=counter(registry, OFFSETS_LOST),
        client_recreations=counter(registry, CLIENT_RECREATIONS),
        up=gauge(registry, DEPENDENCY_UP).labels("kafka"),
    )


_built: WeakKeyDictionary[CollectorRegistry, KafkaMetrics] = WeakKeyDictionary()


def kafka_metrics(registry: CollectorRegistry) -> KafkaMetrics:
    """The instruments registered in ``registry``; the same ones at every call."""
    metrics = _built.get(registry)
    if metrics is None:
        metrics = _built[registry] = _build(registry)
    return metrics
