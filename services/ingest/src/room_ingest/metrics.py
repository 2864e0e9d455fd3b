"""What ingest counts. The hot path adds to plain integers; a collector turns them into series when it is scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from room_common.postgres.overflow import OverflowTotal
from room_common.telemetry.metrics import DEPENDENCY_UP, Metric, define
from room_ingest.answers import HANDSHAKE, OK, OVERFLOW, TOO_LARGE, UNAVAILABLE, UNKNOWN_TOKEN, Answer

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5)
BYTES: Final = (256.0, 1024.0, 4096.0, 16384.0, 65536.0)

REQUESTS: Final = define(Metric("room_ingest_requests_total", "counter", "Requests answered.", ("route", "code")))
ANSWERS: Final = define(
    Metric(
        "room_ingest_answers_total",
        "counter",
        "Requests answered, by what the answer meant; ok: in Kafka, overflow: in the overflow table, "
        "unknown_token: wrong tag and not published.",
        ("route", "answer"),
    )
)
DURATION: Final = define(
    Metric(
        "room_ingest_request_duration_seconds",
        "histogram",
        "Seconds from a request's last byte to its answer.",
        ("route",),
        SECONDS,
    )
)
BODY: Final = define(
    Metric("room_ingest_request_body_bytes", "histogram", "Bytes of the bodies of requests.", ("route",), BYTES)
)
IN_FLIGHT: Final = define(Metric("room_ingest_requests_in_flight", "gauge", "Requests waiting for Kafka."))
CONNECTIONS: Final = define(Metric("room_ingest_connections", "gauge", "Open connections."))
PRODUCE: Final = define(
    Metric("room_ingest_produce_requests_total", "counter", "Produce requests answered or failed.", ("result",))
)
EXPIRED: Final = define(
    Metric("room_ingest_records_expired_total", "counter", "Records that Kafka did not acknowledge in time.")
)
OVERFLOW_ROWS: Final = define(
    Metric("room_ingest_overflow_rows", "gauge", "Records in the overflow table when this process last looked.")
)
OVERFLOW_BYTES: Final = define(
    Metric("room_ingest_overflow_bytes", "gauge", "Bytes of the records in the overflow table at that time.")
)
OVERFLOW_OLDEST: Final = define(
    Metric("room_ingest_overflow_oldest_seconds", "gauge", "Age of the oldest record in the overflow table, 0: none.")
)
OVERFLOWED: Final = define(
    Metric(
        "room_ingest_overflow_records_total",
        "counter",
        "Records of this process at the overflow table; stored, refused (no room, or no answer), drained to Kafka.",
        ("result",),
    )
)


class Distribution:
    """A histogram without locks, for one thread."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the exposition format wants them."""
        result, count = [], 0
        for bound, amount in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += amount
            result.append((bound, float(count)))
        return result


class RouteMetrics:
    """The figures of one route."""

    __slots__ = ("answers", "body", "seconds")

    def __init__(self) -> None:
        self.answers: dict[Answer, int] = {}
        self.seconds = Distribution(SECONDS)
        self.body = Distribution(BYTES)

    def answered(self, answer: Answer, seconds: float, size: int) -> None:
        """Count one. ``answer`` is one of the fixed ones, or a handshake's echo."""
        answers = self.answers
        if answer not in answers:
            answer = HANDSHAKE if answer.name == HANDSHAKE.name else answer
            answers.setdefault(answer, 0)
        answers[answer] += 1
        self.seconds.observe(seconds)
        self.body.observe(size)


class IngestMetrics(Collector):
    """All figures of the process. Read and written by the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.routes = {name: RouteMetrics() for name in ("webhooks", "channels", "other")}
        self.in_flight = 0
        self.connections = 0
        self.produced: dict[str, int] = {"ok": 0, "retried": 0, "failed": 0}
        self.expired = 0
        self.problem: Callable[[], str | None] = lambda: "not started"
        self.overflow = OverflowTotal(0, 0, None)
        self.overflowed: dict[str, int] = {"stored": 0, "refused": 0, "drained": 0}
        for route in ("webhooks", "channels"):
            self.routes[route].answers |= dict.fromkeys((OK, OVERFLOW, UNKNOWN_TOKEN, TOO_LARGE, UNAVAILABLE), 0)
        registry.register(self)

    def collect(self) -> Iterable[Family]:
        yield from self._by_answer()
        yield from self._distributions()
        up = GaugeMetricFamily(DEPENDENCY_UP.name, DEPENDENCY_UP.help, labels=DEPENDENCY_UP.labels)
        up.add_metric(["kafka"], 0 if self.problem() else 1)
        yield up
        yield _gauge(IN_FLIGHT, self.in_flight)
        yield _gauge(CONNECTIONS, self.connections)
        yield _gauge(OVERFLOW_ROWS, self.overflow.rows)
        yield _gauge(OVERFLOW_BYTES, self.overflow.bytes)
        yield _gauge(OVERFLOW_OLDEST, self.overflow.oldest_seconds or 0.0)
        yield _by_result(PRODUCE, self.produced)
        yield _by_result(OVERFLOWED, self.overflowed)
        expired = CounterMetricFamily(_stem(EXPIRED), EXPIRED.help)
        expired.add_metric([], self.expired)
        yield expired

    def _by_answer(self) -> Iterator[Family]:
        requests = CounterMetricFamily(_stem(REQUESTS), REQUESTS.help, labels=REQUESTS.labels)
        answers = CounterMetricFamily(_stem(ANSWERS), ANSWERS.help, labels=ANSWERS.labels)
        for name, route in self.routes.items():
            codes: dict[int, int] = {}
            kinds: dict[str, int] = {}
            for answer, count in route.answers.items():
                kinds[answer.name] = kinds.get(answer.name, 0) + count
                codes[answer.status] = codes.get(answer.status, 0) + count
            for kind, count in kinds.items():
                answers.add_metric([name, kind], count)
            for status, count in codes.items():
                requests.add_metric([name, str(status)], count)
        yield requests
        yield answers

    def _distributions(self) -> Iterator[Family]:
        seconds = HistogramMetricFamily(DURATION.name, DURATION.help, labels=DURATION.labels)
        sizes = HistogramMetricFamily(BODY.name, BODY.help, labels=BODY.labels)
        for name, route in self.routes.items():
            seconds.add_metric([name], route.seconds.buckets(), route.seconds.total)
            sizes.add_metric([name], route.body.buckets(), route.body.total)
        yield seconds
        yield sizes


def _stem(metric: Metric) -> str:
    return metric.name.removesuffix("_total")


def _by_result(metric: Metric, counts: Mapping[str, int]) -> Family:
    family = CounterMetricFamily(_stem(metric), metric.help, labels=metric.labels)
    for result, count in counts.items():
        family.add_metric([result], count)
    return family


def _gauge(metric: Metric, value: float) -> Family:
    return GaugeMetricFamily(metric.name, metric.help, value=value)
