"""Writes what Prometheus, promtool and Grafana read: ``python -m room_monitoring deploy [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from room_monitoring import alerts, cases, objectives
from room_monitoring.dashboards import dashboards
from room_monitoring.rules import Rule, render


def files() -> dict[str, str]:
    """Every file by its path below the folder."""
    groups: dict[str, Sequence[Rule]] = {
        "room-objectives": list(objectives.records()),
        "room-burn-rates": list(objectives.alerts()),
        "room-symptoms": list(alerts.alerts()),
    }
    return {
        "helm/room/files/alerts.yaml": render(groups),
        "monitoring/tests/alerts.yaml": cases.document(),
        **{f"helm/room/files/dashboards/{name}.json": text for name, text in dashboards().items()},
    }


def main(arguments: Sequence[str]) -> int:
    """Write, or with ``--check`` compare: 1 where a file differs."""
    folder, check = Path(arguments[0]), "--check" in arguments[1:]
    differing = [name for name, text in files().items() if not _same(folder / name, text)]
    for name in differing:
        if check:
            sys.stderr.write(f"{folder / name} is not up to date: run make documents\n")
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(files()[name], encoding="utf-8")
    return 1 if check and differing else 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
