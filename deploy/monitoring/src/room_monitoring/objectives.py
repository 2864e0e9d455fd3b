"""Service level objectives, their recording rules and their burn-rate alerts (multi-window, multi-burn-rate)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from room_monitoring.rules import Alert, Record, Rule, Severity

WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
BURNS: Final[tuple[tuple[Severity, str, str, float], ...]] = (
    ("page", "5m", "1h", 14.4),
    ("page", "30m", "6h", 6.0),
    ("ticket", "2h", "1d", 3.0),
    ("ticket", "6h", "3d", 1.0),
)
"""Severity, short and long window, and the burn rate that both must exceed."""


@dataclass(frozen=True, slots=True)
class Objective:
    """``bad`` and ``all`` are selectors of counters, with ``{window}`` where the range belongs."""

    slo: str
    alert: str
    objective: float
    bad: str
    all: str
    summary: str

    def error_ratio(self, window: str) -> str:
        """The share that was bad in ``window``."""
        bad, everything = (text.replace("{window}", window) for text in (self.bad, self.all))
        return f"{bad} / ({everything} > 0)"


def _rate(selector: str) -> str:
    return f"sum by (namespace) (rate({selector}[{{window}}]))"


def _above(histogram: str, labels: str, bound: str) -> tuple[str, str]:
    matchers = f"{{{labels}}}" if labels else ""
    within = f'{{{labels}{"," if labels else ""}le="{bound}"}}'
    count, bucket = _rate(f"{histogram}_count{matchers}"), _rate(f"{histogram}_bucket{within}")
    return f"({count} - {bucket})", count


_LATE_ANSWERS: Final = _above("room_ingest_request_duration_seconds", 'route=~"webhooks|channels"', "0.25")
_LATE_DECISIONS: Final = _above("room_event_age_seconds", 'stage=~"decided|pending"', "5.0")
_LATE_TICKS: Final = _above("room_scheduler_fire_delay_seconds", "", "5.0")

OBJECTIVES: Final = (
    Objective(
        "ingest-availability",
        "RoomIngestAvailability",
        0.999,
        _rate('room_ingest_answers_total{answer=~"unavailable|busy|internal_error"}'),
        _rate('room_ingest_answers_total{route=~"webhooks|channels"}'),
        "Senders get 5xx instead of 200.",
    ),
    Objective("ingest-latency", "RoomIngestLatency", 0.99, *_LATE_ANSWERS, "Senders wait more than 250 ms."),
    Objective(
        "freshness", "RoomFreshness", 0.99, *_LATE_DECISIONS, "Webhooks are decided more than 5 s after receipt."
    ),
    Objective(
        "cycles",
        "RoomCycleFailures",
        0.95,
        _rate('room_cycles_total{status=~"failed|abandoned"}'),
        _rate("room_cycles_total"),
        "Cycles of rooms fail.",
    ),
    Objective("ticks", "RoomTickPunctuality", 0.99, *_LATE_TICKS, "Ticks come more than 5 s late."),
)


def records() -> Iterator[Rule]:
    """What the alerts and the overview stand on."""
    for objective in OBJECTIVES:
        labels = {"slo": objective.slo}
        yield Record("room:slo_objective:ratio", f"vector({objective.objective:g})", labels)
        for window in WINDOWS:
            yield Record(f"room:slo_errors:ratio_rate{window}", objective.error_ratio(window), labels)


def alerts() -> Iterator[Alert]:
    """A page and a ticket for each objective."""
    for objective in OBJECTIVES:
        for severity in ("page", "ticket"):
            terms = []
            for of, short, long, burn in BURNS:
                if of == severity:
                    limit = f"{burn * (1 - objective.objective):.6g}"
                    terms.append(
                        " and ".join(
                            f'room:slo_errors:ratio_rate{window}{{slo="{objective.slo}"}} > {limit}'
                            for window in (long, short)
                        )
                    )
            yield Alert(
                objective.alert,
                " or ".join(f"({term})" for term in terms),
                "5m" if severity == "page" else "15m",
                "page" if severity == "page" else "ticket",
                objective.summary,
                f"{{{{ $value | humanizePercentage }}}} of the last hours were bad; the objective is"
                f" {100 * objective.objective:g} % good.",
                {"slo": objective.slo},
            )
