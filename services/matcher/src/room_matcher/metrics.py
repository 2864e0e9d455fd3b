"""What the matcher counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from room_common.domain.deliveries import OUTCOMES, Outcome
from room_common.domain.verdict import Answer
from room_common.llm.port import CALL_LOCAL, CallKind
from room_common.telemetry.metrics import EVENT_AGE, Metric, counter, define, gauge, histogram

OUTCOMES_TOTAL = define(
    Metric("room_outcomes_total", "counter", "Items of deliveries by the outcome that was recorded.", ("outcome",))
)
VERDICTS_TOTAL = define(
    Metric(
        "room_verdicts_total",
        "counter",
        "Answers of the fast model, by how they were understood and whether they were remembered.",
        ("verdict", "remembered"),
    )
)
VERDICT_WARNINGS_TOTAL = define(
    Metric(
        "room_verdict_warnings_total",
        "counter",
        "Answers that were neither yes nor no; the ledger names the definition.",
        ("kind",),
    )
)
WASTED_CALLS_TOTAL = define(
    Metric(
        "room_wasted_llm_calls_total",
        "counter",
        "Model calls for events that the deciding transaction then refused.",
        ("outcome",),
    )
)
ALREADY_DECIDED_TOTAL = define(
    Metric("room_already_decided_total", "counter", "Items met again after they had been decided.")
)
DIVERTED_TOTAL = define(
    Metric(
        "room_diverted_records_total",
        "counter",
        "Records moved to the slow lane, as their source had its share of the buffer or its key is not known here,"
        " and to its end again (key_again), as it still is not.",
        ("why",),
    )
)
DEAD_LIMIT = define(
    Metric(
        "room_dead_letter_limit_reached",
        "gauge",
        "1 while consumption is held because too many events die; alert on it.",
    )
)


RETRIED_CALLS = define(
    Metric(
        "room_retried_model_calls",
        "gauge",
        "Model calls that fail while the provider answers others, and are asked again until they are given up.",
        ("kind",),
    )
)


class MatcherMetrics:
    """The matcher's instruments, every known label set at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = counter(registry, OUTCOMES_TOTAL)
        self._verdicts = counter(registry, VERDICTS_TOTAL)
        self._warnings = counter(registry, VERDICT_WARNINGS_TOTAL).labels(str(Answer.UNCLEAR))
        self._wasted = counter(registry, WASTED_CALLS_TOTAL)
        self._again = counter(registry, ALREADY_DECIDED_TOTAL)
        self._diverted = counter(registry, DIVERTED_TOTAL)
        self._dead_limit = gauge(registry, DEAD_LIMIT)
        self._dead_limit.set(0)
        self._retried = gauge(registry, RETRIED_CALLS)
        for kind in CALL_LOCAL:
            self._retried.labels(kind)
        self._age = histogram(registry, EVENT_AGE)
        self._decided_age = self._age.labels("decided")
        self._pending_age = self._age.labels("pending")
        for why in ("share", "key", "key_again"):
            self._diverted.labels(why)
        self._of_outcome: dict[Outcome, Counter] = {}
        for outcome in OUTCOMES:
            self._of_outcome[outcome] = self._outcomes.labels(outcome)

    def recorded(self, outcome: Outcome | None, age_seconds: float) -> None:
        """An item came to its end; None: it had come to it before."""
        if outcome is None:
            self._again.inc()
            return
        self._of_outcome[outcome].inc()
        (self._pending_age if outcome == "matched" else self._decided_age).observe(max(0.0, age_seconds))

    def diverted(self, why: str, records: int) -> None:
        """Records went to the slow lane."""
        self._diverted.labels(why).inc(records)

    def dead_limit(self, *, reached: bool) -> None:
        """Too many events die, or one lived again."""
        self._dead_limit.set(int(reached))

    def already_decided(self, items: int) -> None:
        """Items found in the ledger before anything was done for them."""
        self._again.inc(items)

    def verdict(self, understood: str, *, remembered: bool, warning: bool) -> None:
        """An answer was read."""
        self._verdicts.labels(understood, "yes" if remembered else "no").inc()
        if warning:
            self._warnings.inc()

    def retried_call(self, kind: CallKind, by: int) -> None:
        """A model call is in trouble by itself (1), or no longer (-1)."""
        self._retried.labels(kind).inc(by)

    def wasted(self, calls: int, outcome: Outcome) -> None:
        """Calls were paid for an event that could not be admitted."""
        if calls:
            self._wasted.labels(outcome).inc(calls)
