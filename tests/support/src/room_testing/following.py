"""Somebody who follows a page of docs/how-to: its blocks, and running its commands in a folder with a stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[4]
BIN: Final = Path(sys.executable).parent


class Page:
    """One page, by its name below ``docs/how-to``."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs/how-to" / name).read_text()

    def blocks(self, language: str) -> list[str]:
        """The code blocks in ``language``, in order."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)


class Reader:
    """Runs commands in one folder with one environment, which has nothing of ours but the programs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "100",
            **environment,
        }

    def run(self, command: str) -> str:
        """Run it; returns what it printed. A test fails where it does."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def until(self, command: str, good: Callable[[str], bool]) -> str:
        """Run it again and again until its output is ``good``."""
        deadline, output = time.monotonic() + 90, ""
        while time.monotonic() < deadline:
            output = self.run(command)
            if good(output):
                return output
            time.sleep(0.5)
        return pytest.fail(f"{command} never showed what it should: {output}")
