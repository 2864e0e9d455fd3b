"""Metrics of the scheduler."""

from __future__ import annotations

from typing import Final

from room_common.telemetry.metrics import AGE, Metric, define

TICKS: Final = define(Metric("room_scheduler_ticks_total", "counter", "Tick commands emitted, by reason.", ("reason",)))
FIRE_DELAY: Final = define(
    Metric(
        "room_scheduler_fire_delay_seconds",
        "histogram",
        "How late after its boundary a tick's emission began.",
        (),
        AGE,
    )
)
LAST_TICK: Final = define(
    Metric(
        "room_scheduler_tick_timestamp_seconds", "gauge", "When this process last won a tick, in seconds since 1970."
    )
)
DUE_ROOMS: Final = define(Metric("room_scheduler_due_rooms", "gauge", "Rooms woken by the last tick this process won."))
REPLIES: Final = define(
    Metric("room_replies_total", "counter", "Human replies by channel and fate.", ("channel", "fate"))
)
WAITING: Final = define(
    Metric("room_replies_waiting", "gauge", "Replies put aside until a key is back, as this process saw them last.")
)
