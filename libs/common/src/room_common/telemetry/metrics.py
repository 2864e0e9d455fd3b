"""The catalogue of metrics: each one is described once, where it is set, and can be listed for the documentation.

A module describes its metrics at import with :func:`define` and makes them at run time with :func:`instrument`::

    OUTCOMES = define(Metric("room_outcomes_total", "counter", "Decisions of the matcher.", ("outcome",)))
    ...
    self._outcomes = counter(registry, OUTCOMES)

Names follow Prometheus: base units, counters end in ``_total``, and labels have few values: never an id, a token or a
URL. Which labels there are, and how many values each may have, is said once, in ``LABELS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Final, Literal
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from room_common.errors import Defect

Kind = Literal["counter", "gauge", "histogram"]
Instrument = Counter | Gauge | Histogram

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Buckets in seconds for what answers at once: HTTP, SQL."""
SLOW = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Buckets in seconds for model calls and cycles."""
AGE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Buckets in seconds for the age of what waits in a queue."""

_NAME = re.compile(r"room_[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Label:
    """What a label says, and the largest number of values it has in one process. Partitions are an installation's."""

    meaning: str
    most: int


LABELS: Final[Mapping[str, Label]] = {
    "answer": Label("What the answer of ingest meant.", 20),
    "channel": Label("Kind of channel; `unknown` where it could not be told.", 8),
    "code": Label("HTTP status.", 16),
    "commit": Label("Commit that the release was built from; `unknown` outside of an image.", 1),
    "dependency": Label("What Room stands on: `postgresql`, `kafka`, `redis`, `llm`.", 4),
    "direction": Label("Tokens sent (`input`), received (`output`), or sent and found in the provider's cache.", 3),
    "error": Label("Class of an exception.", 30),
    "fate": Label("What became of a human reply.", 20),
    "group": Label("Consumer group.", 4),
    "kind": Label("Kind of what is counted, as the metric says.", 30),
    "outcome": Label("How it ended, as the metric says.", 20),
    "part": Label("Part of a service, as its log names them.", 20),
    "partition": Label("Partition of a topic; exported by its owner only.", 512),
    "reason": Label("Why, as the metric says.", 30),
    "remembered": Label("Whether the verdict came from memory: `yes` or `no`.", 2),
    "result": Label("What it came to, as the metric says.", 8),
    "route": Label("`webhooks`, `channels` or `other`.", 3),
    "service": Label("Name of the service.", 1),
    "stage": Label("Stage of an event's life, in this order: `decided` or `pending`, `taken`, `cycle_ended`.", 4),
    "state": Label("State of what is counted, as the metric says.", 8),
    "status": Label("How it ended, as the metric says.", 10),
    "tier": Label("`fast` or `standard`, the two tiers of models.", 2),
    "tool": Label("Built-in tool; `outside` for all others, `unknown` for names that a model made up.", 8),
    "topic": Label("Kafka topic.", 8),
    "verdict": Label("How a model's answer was understood.", 3),
    "version": Label("Version of Room.", 1),
    "why": Label("Why, as the metric says.", 3),
}
"""Every label there is. A value that nobody here counted on belongs into a log line instead."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the catalogue. ``buckets`` are upper bounds, for histograms only."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or (self.kind == "counter") != self.name.endswith("_total"):
            raise Defect(f"{self.name}: names start with room_, and those of counters, and no others, end in _total")
        if not self.help.endswith("."):
            raise Defect(f"{self.name}: the help text is a sentence")
        if (self.kind == "histogram") != bool(self.buckets):
            raise Defect(f"{self.name}: histograms, and no others, have buckets")
        if unknown := set(self.labels) - set(LABELS):
            raise Defect(f"{self.name}: labels must have few values, and be in LABELS: {', '.join(sorted(unknown))}")


_catalogue: dict[str, Metric] = {}
_instruments: WeakKeyDictionary[CollectorRegistry, dict[str, Instrument]] = WeakKeyDictionary()


def define(metric: Metric) -> Metric:
    """Enter ``metric`` into the catalogue. Raises Defect if another metric has its name."""
    if _catalogue.setdefault(metric.name, metric) != metric:
        raise Defect(f"{metric.name} is defined twice")
    return metric


def catalogue() -> tuple[Metric, ...]:
    """Every metric defined by the modules imported so far, by name."""
    return tuple(_catalogue[name] for name in sorted(_catalogue))


def instrument(registry: CollectorRegistry, metric: Metric) -> Instrument:
    """The instrument of ``metric`` in ``registry``: made at the first call, the same one afterwards."""
    if _catalogue.get(metric.name) != metric:
        raise Defect(f"{metric.name} is not in the catalogue; use define()")
    known = _instruments.setdefault(registry, {})
    if metric.name not in known:
        known[metric.name] = _make(registry, metric)
    return known[metric.name]


def counter(registry: CollectorRegistry, metric: Metric) -> Counter:
    """:func:`instrument`, typed."""
    found = instrument(registry, metric)
    assert isinstance(found, Counter)
    return found


def gauge(registry: CollectorRegistry, metric: Metric) -> Gauge:
    """:func:`instrument`, typed."""
    found = instrument(registry, metric)
    assert isinstance(found, Gauge)
    return found


def histogram(registry: CollectorRegistry, metric: Metric) -> Histogram:
    """:func:`instrument`, typed."""
    found = instrument(registry, metric)
    assert isinstance(found, Histogram)
    return found


def _make(registry: CollectorRegistry, metric: Metric) -> Instrument:
    if metric.kind == "counter":
        return Counter(metric.name, metric.help, metric.labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, metric.labels, registry=registry)
    return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)


BUILD_INFO = define(
    Metric("room_build_info", "gauge", "Always 1; the labels say what runs.", ("version", "commit", "service"))
)
DEPENDENCY_UP = define(
    Metric("room_dependency_up", "gauge", "1 while the dependency answered last time, else 0.", ("dependency",))
)
EVENT_AGE = define(
    Metric(
        "room_event_age_seconds",
        "histogram",
        "Age of an event, counted from its receipt, when a stage is done with it.",
        ("stage",),
        AGE,
    )
)
DEAD_LETTERS = define(
    Metric("room_dead_letters_total", "counter", "Records put on a dead-letter topic.", ("topic", "reason"))
)
PART_FAILURES = define(
    Metric("room_part_start_failures_total", "counter", "Starts of a part that failed and are repeated.", ("part",))
)
LOOP_LAG = define(
    Metric(
        "room_event_loop_lag_seconds", "gauge", "How late the event loop ran the last timer; large means it is blocked."
    )
)


def room_version() -> str:
    """Version of the installed Room."""
    try:
        return version("room-common")
    except PackageNotFoundError:
        return "unknown"


def room_commit() -> str:
    """The commit this Room was built from: the file COMMIT beside the package, which an image's build writes."""
    found = files("room_common").joinpath("COMMIT")
    return found.read_text().strip()[:40] if found.is_file() else "unknown"


def dead_letter_reason(kind: str) -> str:
    """The kind of a dead letter as a label: whatever nobody foresaw is one of them."""
    return "unforeseen" if kind.startswith("unforeseen") else kind


def new_registry(service: str) -> CollectorRegistry:
    """A registry with the build information. Counters don't export a ``_created`` series, which would double them."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=True)
    gauge(registry, BUILD_INFO).labels(room_version(), room_commit(), service).set(1)
    return registry
