"""Metrics of the compactor."""

from __future__ import annotations

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
