"""Alerts on symptoms, beside the burn rates of the objectives. Ages, not counts: a backlog that moves is fine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from room_monitoring.rules import Alert, Severity

SERVICES: Final = ("ingest", "matcher", "scheduler", "room-runner", "outbound", "compactor", "admin")
_DAY: Final = 86_400


def _alert(name: str, severity: Severity, wait: str, expr: str, summary: str, description: str) -> Alert:
    return Alert(name, expr, wait, severity, summary, description)


def _absent() -> str:
    return " or ".join(f'absent(room_build_info{{service="{service}"}})' for service in SERVICES)


ALERTS: Final = (
    _alert(
        "RoomDeliveriesMissing", "page", "5m",
        "max by (namespace) (room_conservation_gap) > 0",
        "Webhooks that were answered 200 have no outcome.",
        "{{ $value }} deliveries were passed without an outcome; `room reconcile` names them.",
    ),
    _alert(
        "RoomAuditStale", "ticket", "5m",
        "time() - max by (namespace) (room_conservation_checked_timestamp_seconds) > 900",
        "Nobody compares Kafka with the ledger.",
        "The last comparison was {{ $value | humanizeDuration }} ago.",
    ),
    _alert(
        "RoomOffsetsLost", "page", "5m",
        "sum by (namespace, topic, group) (increase(room_consumer_offsets_lost_total[1h])) > 0",
        "Kafka deleted records before they were read.",
        "{{ $value | humanize }} records of {{ $labels.topic }} were lost to {{ $labels.group }}.",
    ),
    _alert(
        "RoomRetentionNear", "page", "5m",
        f"max by (namespace, topic) (room_undecided_oldest_seconds) > {7 * _DAY // 2}",
        "The oldest undecided record has used up half of its topic's retention.",
        "The oldest record of {{ $labels.topic }} waits for {{ $value | humanizeDuration }}.",
    ),
    _alert(
        "RoomUndecidedOld", "page", "5m",
        "max by (namespace, topic) (room_undecided_oldest_seconds) > 600",
        "Records wait for more than 10 minutes.",
        "The oldest record of {{ $labels.topic }} waits for {{ $value | humanizeDuration }}.",
    ),
    _alert(
        "RoomConsumerStalled", "page", "5m",
        "(time() - room_consumer_progress_timestamp_seconds > 120) and room_consumer_lag_messages > 0"
        " unless on (namespace, group) (max by (namespace, group) (room_held) == 1)",
        "A partition has work and no progress.",
        "Partition {{ $labels.partition }} of {{ $labels.topic }} stands still for {{ $value | humanizeDuration }}.",
    ),
    _alert(
        "RoomConsumptionHeld", "page", "5m",
        "max by (namespace, group, reason) (room_held) == 1",
        "Consumption waits for a dependency; nothing is lost.",
        "{{ $labels.group }} is held: {{ $labels.reason }}.",
    ),
    _alert(
        "RoomDeadLetterLimit", "page", "5m",
        "max by (namespace) (room_dead_letter_limit_reached) == 1",
        "So many webhooks die that consumption is held.",
        "The limit of dead letters is reached ({{ $value }}).",
    ),
    _alert(
        "RoomDeadLetters", "ticket", "10m",
        "sum by (namespace, topic, reason) (increase(room_dead_letters_total[15m])) > 0",
        "Records end on a dead-letter topic.",
        "{{ $value | humanize }} on {{ $labels.topic }} in 15 minutes: {{ $labels.reason }}.",
    ),
    _alert(
        "RoomOverflowOld", "page", "5m",
        "max by (namespace) (room_ingest_overflow_oldest_seconds) > 300",
        "Webhooks wait in PostgreSQL since Kafka does not take them.",
        "The oldest one waits for {{ $value | humanizeDuration }}.",
    ),
    _alert(
        "RoomNoTicks", "page", "5m",
        "time() - max by (namespace) (room_scheduler_tick_timestamp_seconds) > 90",
        "Rooms are not woken: no tick for two intervals.",
        "The last tick was {{ $value | humanizeDuration }} ago.",
    ),
    _alert(
        "RoomRoomsWaiting", "page", "5m",
        "max by (namespace) (room_due_oldest_seconds) > 300",
        "Rooms with work get no cycle slot.",
        "The first of them waits for {{ $value | humanizeDuration }}.",
    ),
    _alert(
        "RoomRoomsParked", "ticket", "5m",
        "max by (namespace) (room_parked_rooms) > 0",
        "Rooms run no more after too many failed cycles.",
        "{{ $value }} rooms are parked.",
    ),
    _alert(
        "RoomEventsFailed", "ticket", "5m",
        "max by (namespace) (room_failed_events) > 0",
        "Events were given up and wait for a person.",
        "{{ $value }} events are failed.",
    ),
    _alert(
        "RoomModelTrouble", "page", "5m",
        'sum by (namespace, tier) (rate(room_llm_requests_total{outcome="provider"}[5m]))'
        ' / (sum by (namespace, tier) (rate(room_llm_requests_total{outcome!="cancelled"}[5m])) > 0) > 0.2',
        "The model provider fails.",
        "{{ $value | humanizePercentage }} of the calls of tier {{ $labels.tier }} fail.",
    ),
    _alert(
        "RoomModelOverrideRefused", "ticket", "5m",
        'sum by (namespace, tier) (increase(room_llm_requests_total{outcome="fallback"}[15m])) > 0',
        "A room's own model is refused; the tier's default answers.",
        "{{ $value | humanize }} calls of tier {{ $labels.tier }} in 15 minutes.",
    ),
    _alert(
        "RoomVerdictsUnclear", "ticket", "10m",
        "sum by (namespace) (rate(room_verdict_warnings_total[30m]))"
        " / (sum by (namespace) (rate(room_verdicts_total[30m])) > 0) > 0.05",
        "The fast model answers neither yes nor no.",
        "{{ $value | humanizePercentage }} of the verdicts are unclear and count as no.",
    ),
    _alert(
        "RoomMessagesFailing", "ticket", "5m",
        'sum by (namespace, channel) (increase(room_outbound_messages_total{status="failed"}[15m]))'
        ' / (sum by (namespace, channel) (increase(room_outbound_messages_total{status=~"sent|failed"}[15m])) > 0)'
        " > 0.1",
        "Messages to people fail for good.",
        "{{ $value | humanizePercentage }} of the messages on {{ $labels.channel }} fail.",
    ),
    _alert(
        "RoomMessagesUnknown", "ticket", "5m",
        "max by (namespace) (room_unknown_messages) > 0",
        "Messages may or may not have been sent.",
        "{{ $value }} messages of the last day are of unknown fate.",
    ),
    _alert(
        "RoomRepliesWaiting", "ticket", "10m",
        "max by (namespace) (room_replies_waiting) > 0",
        "Human replies wait for an encryption key.",
        "{{ $value }} replies are put aside.",
    ),
    _alert(
        "RoomCompactorOverdue", "ticket", "5m",
        f"time() - (max by (namespace) (room_compactor_success_timestamp_seconds) != 0) > {2 * _DAY + 3600}",
        "The daily upkeep has not been done for two days.",
        "It was last complete {{ $value | humanizeDuration }} ago.",
    ),
    _alert(
        "RoomDependencyDown", "page", "5m",
        'min by (namespace, job, dependency) (room_dependency_up{dependency=~"postgresql|kafka"}) == 0',
        "PostgreSQL or Kafka does not answer.",
        "{{ $labels.dependency }} does not answer {{ $labels.job }} ({{ $value }}).",
    ),
    _alert(
        "RoomRedisDown", "ticket", "5m",
        'min by (namespace, job) (room_dependency_up{dependency="redis"}) == 0',
        "Redis does not answer: verdicts are not remembered and cost more, all else works.",
        "Redis does not answer {{ $labels.job }} ({{ $value }}).",
    ),
    _alert(
        "RoomEventLoopBlocked", "ticket", "5m",
        "max by (namespace, job, instance) (room_event_loop_lag_seconds) > 1",
        "A process is too busy to answer.",
        "Timers of {{ $labels.instance }} run {{ $value | humanizeDuration }} late.",
    ),
    _alert(
        "RoomServiceAbsent", "page", "5m",
        _absent(),
        "No process of a service is scraped.",
        "There is no {{ $labels.service }} ({{ $value }}).",
    ),
)  # fmt: skip
"""By what they mean, worst first."""


def alerts() -> Iterator[Alert]:
    """All of them."""
    yield from ALERTS
