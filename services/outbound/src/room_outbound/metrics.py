"""Metrics of outbound."""

from __future__ import annotations

from typing import Final

from room_common.telemetry.metrics import AGE, Metric, define

MESSAGES: Final = define(
    Metric(
        "room_outbound_messages_total",
        "counter",
        "Delivery attempts by channel and what became of them.",
        ("channel", "status"),
    )
)
IN_FLIGHT: Final = define(Metric("room_outbound_in_flight", "gauge", "Deliveries under way in this process."))
MESSAGE_AGE: Final = define(
    Metric(
        "room_outbound_message_age_seconds",
        "histogram",
        "Seconds from the commit of a message to its acceptance by the provider.",
        (),
        AGE,
    )
)
