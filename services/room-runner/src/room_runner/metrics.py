"""Metrics of room-runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from room_common.telemetry.metrics import EVENT_AGE, SLOW, Metric, counter, define, gauge, histogram

CYCLES: Final = define(Metric("room_cycles_total", "counter", "Cycles that ended, by how.", ("status",)))
CYCLE_SECONDS: Final = define(
    Metric(
        "room_cycle_duration_seconds",
        "histogram",
        "Time from the claim of a room to the end of its cycle.",
        (),
        (*SLOW, 300.0, 600.0),
    )
)
RESUMED: Final = define(
    Metric("room_cycle_resumes_total", "counter", "Cycles gone on with after another lease of theirs had ended.")
)
SUSPENDED: Final = define(
    Metric("room_cycles_suspended_total", "counter", "Cycles given back unfinished, to be resumed.", ("reason",))
)
SLOTS: Final = define(Metric("room_cycle_slots", "gauge", "Cycle slots of this process, busy and free.", ("state",)))
CLAIMS_HELD: Final = define(
    Metric("room_claims_held", "gauge", "1 while the model provider is in trouble and no room is claimed.")
)
LEASES_LOST: Final = define(
    Metric("room_leases_lost_total", "counter", "Leases of this process that ended before their cycle.", ("reason",))
)
SWEPT: Final = define(Metric("room_leases_swept_total", "counter", "Expired leases of any process that were ended."))
TOOL_CALLS: Final = define(
    Metric(
        "room_tool_calls_total",
        "counter",
        "Tool calls of cycles; tool outside stands for all but the built-in ones.",
        ("tool", "outcome"),
    )
)
TICKS: Final = define(Metric("room_ticks_taken_total", "counter", "Tick commands taken, by reason.", ("reason",)))
PUBLISHED: Final = define(
    Metric("room_outbox_published_total", "counter", "Records of outbox rows that were acknowledged.")
)

STATUSES: Final = ("succeeded", "failed", "abandoned")


@dataclass(frozen=True, slots=True)
class CycleMetrics:
    """What a cycle counts."""

    cycles: Counter
    resumed: Counter
    suspended: Counter
    seconds: Histogram
    tool_calls: Counter
    event_age: Histogram

    @classmethod
    def build(cls, registry: CollectorRegistry) -> CycleMetrics:
        """Register, with the statuses at 0."""
        metrics = cls(
            counter(registry, CYCLES),
            counter(registry, RESUMED),
            counter(registry, SUSPENDED),
            histogram(registry, CYCLE_SECONDS),
            counter(registry, TOOL_CALLS),
            histogram(registry, EVENT_AGE),
        )
        for status in STATUSES:
            metrics.cycles.labels(status)
        return metrics


@dataclass(frozen=True, slots=True)
class SlotMetrics:
    """What the slots show."""

    slots: Gauge
    held: Gauge
    lost: Counter

    @classmethod
    def build(cls, registry: CollectorRegistry) -> SlotMetrics:
        """Register."""
        return cls(gauge(registry, SLOTS), gauge(registry, CLAIMS_HELD), counter(registry, LEASES_LOST))
