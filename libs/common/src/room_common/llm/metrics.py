"""Metrics of model calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from room_common.llm.port import TIERS, Completion, Tier
from room_common.telemetry.metrics import DEPENDENCY_UP, Metric, counter, define, gauge, histogram

Outcome = Literal["ok", "fallback", "provider", "rejected", "unforeseen", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "fallback", "provider", "rejected", "unforeseen", "cancelled")
DIRECTIONS = ("input", "output", "cached")
DURATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 240.0)

REQUESTS = define(
    Metric(
        "room_llm_requests_total",
        "counter",
        "Model calls; outcome fallback: an instance's own model was refused and the tier's default answered.",
        ("tier", "outcome"),
    )
)
DURATION = define(
    Metric(
        "room_llm_request_duration_seconds",
        "histogram",
        "Time of a model call with its retries, without the wait for a free slot.",
        ("tier",),
        DURATION_BUCKETS,
    )
)
TOKENS = define(
    Metric(
        "room_llm_tokens_total",
        "counter",
        "Tokens as the provider counts them; cached ones are also part of input.",
        ("tier", "direction"),
    )
)
RETRIES = define(
    Metric("room_llm_retries_total", "counter", "Further tries of model calls by reason.", ("tier", "reason"))
)


@dataclass(frozen=True, slots=True)
class LlmMetrics:
    """The instruments of one registry."""

    requests: Counter
    duration: Histogram
    tokens: Counter
    retries: Counter
    up: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> LlmMetrics:
        """Make the instruments, with the known label sets at 0."""
        metrics = cls(
            requests=counter(registry, REQUESTS),
            duration=histogram(registry, DURATION),
            tokens=counter(registry, TOKENS),
            retries=counter(registry, RETRIES),
            up=gauge(registry, DEPENDENCY_UP).labels("llm"),
        )
        metrics.up.set(1)
        for tier in TIERS:
            metrics.duration.labels(tier)
            for outcome in OUTCOMES:
                metrics.requests.labels(tier, outcome)
            for direction in DIRECTIONS:
                metrics.tokens.labels(tier, direction)
        return metrics

    def answered(self, tier: Tier, completion: Completion) -> None:
        """Count an answer and its tokens."""
        self.up.set(1)
        self.requests.labels(tier, "fallback" if completion.fallback else "ok").inc()
        counts = (completion.input_tokens, completion.output_tokens, completion.cached_tokens)
        for direction, count in zip(DIRECTIONS, counts, strict=True):
            self.tokens.labels(tier, direction).inc(count)
