"""Metrics of the compactor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from room_common.telemetry.metrics import Metric, define

RUNS: Final = define(
    Metric("room_compactor_runs_total", "counter", "Daily runs this process took part in, by outcome.", ("outcome",))
)
RUN_DURATION: Final = define(
    Metric(
        "room_compactor_run_duration_seconds",
        "histogram",
        "Duration of a daily run in this process.",
        (),
        (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
    )
)
ROWS: Final = define(
    Metric(
        "room_compactor_rows_total",
        "counter",
        "Rows summed up or deleted, by kind; partitions that were made and dropped count as one each.",
        ("kind",),
    )
)
SUCCESS: Final = define(
    Metric(
        "room_compactor_success_timestamp_seconds",
        "gauge",
        "When the daily work was last complete, whichever process completed it, in seconds since 1970; 0 for never.",
    )
)
GAP: Final = define(
    Metric(
        "room_conservation_gap",
        "gauge",
        "Deliveries that the matcher has passed although an item of theirs has no outcome in the ledger; anything but 0"
        " is a loss.",
    )
)
CHECKED: Final = define(
    Metric("room_conservation_checked_total", "counter", "Records compared with the ledger.", ("topic",))
)
CHECKED_AT: Final = define(
    Metric(
        "room_conservation_checked_timestamp_seconds",
        "gauge",
        "When Kafka and the ledger were last compared, in seconds since 1970; 0 for not yet.",
    )
)
OLDEST: Final = define(
    Metric(
        "room_undecided_oldest_seconds",
        "gauge",
        "Age of the oldest record that its consumer group has not finished, whether or not the group has members.",
        ("topic",),
    )
)
PARKED_ROOMS: Final = define(
    Metric("room_parked_rooms", "gauge", "Rooms that run no more after too many failed cycles, until `room resume`.")
)
FAILED_EVENTS: Final = define(
    Metric("room_failed_events", "gauge", "Events given up, until `room backlog retry` or `room backlog complete`.")
)
PENDING_EVENTS: Final = define(Metric("room_pending_events", "gauge", "Events of all rooms that wait for a cycle."))
DUE_ROOMS: Final = define(Metric("room_due_rooms", "gauge", "Rooms with work that wait for a free cycle slot."))
DUE_SECONDS: Final = define(
    Metric("room_due_oldest_seconds", "gauge", "For so long the first of these rooms has waited; 0 where none does.")
)
UNKNOWN_MESSAGES: Final = define(
    Metric(
        "room_unknown_messages",
        "gauge",
        "Messages of the last 24 hours that may or may not have been sent, on channels that send at most once.",
    )
)
STANDING: Final[Mapping[str, Metric]] = {
    "parked_rooms": PARKED_ROOMS,
    "failed_events": FAILED_EVENTS,
    "pending_events": PENDING_EVENTS,
    "due_rooms": DUE_ROOMS,
    "due_seconds": DUE_SECONDS,
    "unknown_messages": UNKNOWN_MESSAGES,
}
"""What is counted in PostgreSQL, by the name it has there."""
