"""Metrics of model calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram

from room_common.llm.port import TIERS, Completion, Tier

Outcome = Literal["ok", "fallback", "provider", "rejected", "unforeseen", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "fallback", "provider", "rejected", "unforeseen", "cancelled")
DIRECTIONS = ("input", "output", "cached")
DURATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 240.0)


@dataclass(frozen=True, slots=True)
class LlmMetrics:
    """``requests`` counts calls of the port by outcome; ``retries`` counts the tries beyond the first by reason."""

    requests: Counter
    duration: Histogram
    tokens: Counter
    retries: Counter

    @classmethod
    def build(cls, registry: CollectorRegistry) -> LlmMetrics:
        """Register the metrics, with the known label sets at 0."""
        metrics = cls(
            requests=Counter(
                "room_llm_requests_total",
                "Model calls by tier and outcome; fallback: an instance's own model was refused, the default answered.",
                ["tier", "outcome"],
                registry=registry,
            ),
            duration=Histogram(
                "room_llm_request_duration_seconds",
                "Time of a model call with its retries, without the wait for a free slot.",
                ["tier"],
                buckets=DURATION_BUCKETS,
                registry=registry,
            ),
            tokens=Counter(
                "room_llm_tokens_total",
                "Tokens as the provider counts them; cached ones are also part of input.",
                ["tier", "direction"],
                registry=registry,
            ),
            retries=Counter(
                "room_llm_retries_total",
                "Further tries of model calls by reason.",
                ["tier", "reason"],
                registry=registry,
            ),
        )
        for tier in TIERS:
            metrics.duration.labels(tier)
            for outcome in OUTCOMES:
                metrics.requests.labels(tier, outcome)
            for direction in DIRECTIONS:
                metrics.tokens.labels(tier, direction)
        return metrics

    def answered(self, tier: Tier, completion: Completion) -> None:
        """Count an answer and its tokens."""
        self.requests.labels(tier, "fallback" if completion.fallback else "ok").inc()
        counts = (completion.input_tokens, completion.output_tokens, completion.cached_tokens)
        for direction, count in zip(DIRECTIONS, counts, strict=True):
            self.tokens.labels(tier, direction).inc(count)
