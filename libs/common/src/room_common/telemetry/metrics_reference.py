"""Writes docs/metrics.md from the catalogue: ``python -m room_common.telemetry.metrics_reference [FILE | --check
FILE]``.

Without a file the text goes to standard output; ``--check`` exits with 1 where the file differs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from room_common.generated import write_or_check
from room_common.settings_reference import SERVICES
from room_common.telemetry.metrics import LABELS, Metric

SHARED: Final[Mapping[str, str]] = {
    "room_common.telemetry.metrics": "Every service",
    "room_common.kafka.metrics": "Kafka clients",
    "room_common.llm.metrics": "Model calls (matcher, runner, admin)",
    "room_common.cache.memory": "Verdict memory (matcher)",
}
"""Modules of the library that describe metrics, and the heading of each."""

_HEAD: Final = """\
# Metrics

<!-- Written by `python -m room_common.telemetry.metrics_reference`; change the code's catalogue, not this file. -->

Every service answers `GET /metrics` on its operations port (`ROOM_OPERATIONS__PORT`), in the text format of Prometheus
or as OpenMetrics, whichever is asked for. Counters start at 0 with the process: use `rate` and `increase`. Rules and
alerts that stand on these names are in [alerts.yaml](../deploy/helm/room/files/alerts.yaml), what to do about each
alert in [the runbooks](runbooks/README.md).

No label carries the id or name of a room, event, sender or anything else that grows: those are in the logs.
"""


def find() -> dict[str, list[Metric]]:
    """The metrics by heading. Services whose package is not installed are left out."""
    modules = dict(SHARED)
    for service in SERVICES:
        if importlib.util.find_spec(f"room_{service}") and importlib.util.find_spec(f"room_{service}.metrics"):
            modules[f"room_{service}.metrics"] = service
    found: dict[str, list[Metric]] = {}
    known: set[str] = set()
    for name, heading in modules.items():
        metrics = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, Metric)]
        # What a module only imports is listed where it is described.
        own = {metric.name: metric for metric in metrics if metric.name not in known}
        known |= own.keys()
        found[heading] = [own[metric] for metric in sorted(own)]
    return found


def render(sections: Mapping[str, Sequence[Metric]]) -> str:
    """The document."""
    blocks = [_HEAD]
    for heading, metrics in sections.items():
        head = ["| Name | Type | Labels | Meaning |", "| --- | --- | --- | --- |"]
        blocks.append("\n".join([f"## {heading}", "", *head, *map(_row, metrics), ""]))
    buckets = [
        f"| `{metric.name}` | {', '.join(f'{bound:g}' for bound in metric.buckets)} |"
        for metrics in sections.values()
        for metric in metrics
        if metric.buckets
    ]
    blocks.append("\n".join(["## Buckets", "", "| Histogram | Upper bounds |", "| --- | --- |", *buckets, ""]))
    used = {label for metrics in sections.values() for metric in metrics for label in metric.labels}
    labels = [f"| `{name}` | {LABELS[name].most} | {LABELS[name].meaning} |" for name in LABELS if name in used]
    blocks.append(
        "\n".join(["## Labels", "", "| Label | Values at most | Meaning |", "| --- | --- | --- |", *labels, ""])
    )
    return "\n".join(blocks)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def main(arguments: Sequence[str]) -> int:
    """Write or check the document; the exit code."""
    return write_or_check(render(find()), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
