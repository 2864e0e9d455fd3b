"""Every command of the README is run, on a stack of its own, in the order in which a reader comes to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent

STARTS_ELSEWHERE = {
    "make demo": "run by .ci/run from a fresh clone",
    "make test": "what runs this test",
    "make up": "run here as its command, in the background and on free ports",
    ". .venv/bin/activate": "the test's own environment",
}

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def _commands() -> list[str]:
    lines = [line for block in _blocks("sh") for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def _inline_commands() -> set[str]:
    return {code for code in re.findall(r"`([^`\n]+)`", README) if code.startswith(("room ", "make "))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that looks like a checkout, with a stack running in it."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    run_in(folder, "room up -d --tick-seconds 2 --ingest-port 0 --operations-port 0 --admin-port 0")
    yield folder
    run_in(folder, "room down")


def run_in(folder: Path, command: str, *, stdin: str = "", check: bool = True) -> str:
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
        "REVENUE_DESK_HUBSPOT_SECRET": "one",
        "REVENUE_DESK_STRIPE_SECRET": "two",
        "REVENUE_DESK_GITHUB_SECRET": "three",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _await(folder: Path, command: str, wanted: str) -> None:
    deadline = time.monotonic() + 60
    output = ""
    while time.monotonic() < deadline:
        output = run_in(folder, f"{command} --json")
        if wanted in output:
            return
        time.sleep(0.5)
    pytest.fail(f"{command} never showed {wanted!r}: {output}")


def test_the_commands_of_the_readme_do_what_it_says(folder: Path) -> None:
    (definition,) = (block for block in _blocks("yaml") if "new-star" in block)
    text = (ROOT / "examples/revenue-desk/room.yaml").read_text()
    (folder / "my-room.yaml").write_text(text.rstrip("\n") + "\n" + definition)
    ran = []
    for command in _commands():
        if command in STARTS_ELSEWHERE:
            continue
        if command == "room deliveries":
            _await(folder, command, "new-star")
        if command == "room messages":
            _await(folder, command, '"sent"')
        if command == "room inbox":
            _await(folder, command, "Thank you")
        output = run_in(folder, command)
        ran.append(command)
        if command.startswith("room send"):
            assert '{"ok":true}' in output
        if command == "room apply -f my-room.yaml":
            assert "1 changed" in output
            assert "new-star" in output
        if command == "room apply -f examples/revenue-desk/room.yaml":
            assert output.count("/webhooks/") == 3
    assert any(command.startswith("room cycles show") for command in ran)


def test_every_list_has_json(folder: Path) -> None:
    for command in ("sources", "deliveries", "backlog", "cycles", "messages", "inbox", "topics"):
        json.loads(run_in(folder, f"room {command} --json"))
    assert json.loads(run_in(folder, "room status --json"))["state"] == "running"


def test_commands_in_the_text_exist() -> None:
    for command in _inline_commands():
        words = command.split()
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        else:
            named = words[1]
            done = subprocess.run([BIN / "room", named, "--help"], capture_output=True, text=True)
            assert done.returncode == 0, command
            for option in (word for word in words[2:] if word.startswith("-")):
                assert option in done.stdout, command
