"""Every command of docs/how-to/operate-deliveries.md is run, on a stack of its own, in its order."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from room_cli.connection import connect

from .test_readme import ROOT, run_in

PAGE = (ROOT / "docs/how-to/operate-deliveries.md").read_text()

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that looks like a checkout, with a stack running in it; not below pytest's own (see server_folder)."""
    with tempfile.TemporaryDirectory(prefix="room-operating-") as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        run_in(folder, "room up -d --tick-seconds 2 --ingest-port 0 --operations-port 0 --admin-port 0")
        try:
            yield folder
        finally:
            run_in(folder, "room down")


def _decided(folder: Path) -> int:
    return len(connect(folder).items("/deliveries", 100))


def _await_decided(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if _decided(folder) >= count:
            return
        time.sleep(0.3)
    pytest.fail(f"the delivery was not decided: {_decided(folder)} of {count}")


SAYS = {
    "room deliveries show last": ("matched", "deploy-broken", "asked", "verified"),
    "room deliveries payload last": ('"workflow_run"',),
    "room deliveries replay last": ("is sent again as",),
    "room deliveries --outcome bad_signature": ("github-ci",),
    "room deliveries replay last --force": ("is sent again as",),
    "room definitions": ("deploy-broken",),
    "room definitions test -f definition.yaml --source github-ci --last 200": ("verdicts change", "tokens"),
    "room sources rotate github-ci --grace 3600": ("/webhooks/", "works until"),
    "room delete room revenue-desk --yes": ("is deleted",),
}


def test_the_commands_do_what_the_page_says(folder: Path) -> None:
    (definition,) = _blocks("yaml")
    (folder / "definition.yaml").write_text(definition)
    commands = [line.strip() for block in _blocks("sh") for line in block.splitlines() if line.strip()]
    said = set()
    for command in commands:
        before = _decided(folder)
        if command.endswith("--force"):
            assert "force" in run_in(folder, f"{command.removesuffix(' --force')} 2>&1 || true")
        output = run_in(folder, command)
        for words in SAYS.get(command, ()):
            assert words in output, f"{command}: {output}"
            said.add(command)
        if command.startswith(("room send", "room deliveries replay")):
            _await_decided(folder, before + 1)
        if command == "room deliveries replay last --force":
            assert "not verified" in run_in(folder, "room deliveries show last")
    assert said == set(SAYS)
    assert json.loads(run_in(folder, "room sources --json")) == []
