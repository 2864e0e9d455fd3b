"""Writes what the chart takes from the code: ``python -m schema [--check]``, with ``deploy/helm`` on the path."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from schema.catalogue import catalogue
from schema.values import schema

CHART = Path(__file__).resolve().parents[1] / "room"


def files() -> dict[Path, str]:
    """What each generated file has to hold."""
    return {
        CHART / "values.schema.json": json.dumps(schema(), indent=1, sort_keys=True) + "\n",
        CHART / "files" / "catalogue.json": json.dumps(catalogue(), indent=1) + "\n",
    }


def main(arguments: Sequence[str]) -> int:
    late = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in late:
            sys.stderr.write(f"{path} is not up to date: run make documents\n")
        return 1 if late else 0
    for path in late:
        path.write_text(files()[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
