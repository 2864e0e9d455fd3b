"""Writes the OpenAPI document: ``python -m room_admin.openapi contracts/openapi.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from room_admin.api import build


def document() -> str:
    """The OpenAPI document of this release."""
    return json.dumps(build().openapi(), indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document())
