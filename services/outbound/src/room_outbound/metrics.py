"""Metrics of outbound."""

from __future__ import annotations

from typing import Final

from room_common.telemetry.metrics import Metric, define

MESSAGES: Final = define(
    Metric(
        "room_outbound_messages_total",
        "counter",
        "Delivery attempts by channel and what became of them.",
        ("channel", "status"),
    )
)
IN_FLIGHT: Final = define(Metric("room_outbound_in_flight", "gauge", "Deliveries under way in this process."))
