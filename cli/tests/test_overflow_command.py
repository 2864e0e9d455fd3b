"""What ``room overflow`` says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from room_cli import overflow_command
from room_cli.__main__ import app

FULL = {"rows": 12_345, "bytes": 5 << 20, "oldest_seconds": 61.4}
EMPTY = {"rows": 0, "bytes": 0, "oldest_seconds": None}


@pytest.mark.parametrize(
    ("found", "said"),
    [(FULL, "12,345 records wait for Kafka: 5.0 MiB, the oldest for 61 s"), (EMPTY, "nothing waits for Kafka")],
)
def test_it_says_what_waits(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], said: str) -> None:
    class Api:
        def get(self, path: str) -> dict[str, Any]:
            assert path == "/overflow"
            return found

    monkeypatch.setattr(overflow_command, "connect", lambda directory: Api())
    result = CliRunner().invoke(app, ["overflow"])
    assert (result.exit_code, result.stdout.strip()) == (0, said)
    result = CliRunner().invoke(app, ["overflow", "--json"])
    assert json.loads(result.stdout) == found
