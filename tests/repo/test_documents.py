"""The documentation is in step with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "contracts" / "README.md"])
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def test_the_configuration_reference_is_in_step() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "room_common.settings_reference", "--check", "docs/configuration.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, f"run: make documents\n{checked.stdout}{checked.stderr}"


def test_the_reference_of_the_command_line_is_in_step() -> None:
    checked = subprocess.run([sys.executable, "-m", "room_cli.reference", "--check", "docs/command-line.md"], cwd=ROOT)
    assert checked.returncode == 0, "run: make documents"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), target


def test_pins_are_bare() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        for line in file.read_text().splitlines():
            assert re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==([0-9]+!)?[A-Za-z0-9.]+", line), (
                f"{file.name}: {line}"
            )


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE) for name in line.split()}
    described = set(re.findall(r"^([a-z0-9-]+):.*## \S", makefile, re.MULTILINE))
    assert phony == described


def test_changelog_names_what_is_unreleased() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
