"""The ``room`` command in this process, against a real admin on a real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from room_cli import output
from room_cli.__main__ import app
from room_testing.administering import TOKENS, Received, receiver, served

ROOM_FILE = """\
version: 1
name: Desk
slug: desk
channel: {type: local, target: you}
sources:
  - name: ci
    type: github
    secrets: [{env: CI_SECRET}]
    definitions:
      - {name: broken, match: a build broke}
  - name: billing
    type: stripe
    secrets: [{env: BILLING_SECRET}]
"""


@dataclass(frozen=True, slots=True)
class Command:
    """Runs ``room`` with the environment that names the API."""

    url: str
    folder: Path
    taken: list[Received]

    def __call__(
        self, *words: str, token: str = TOKENS["operator"], typed: str | None = None, code: int = 0, width: int = 80
    ) -> Result:
        """One run, which has to end with that exit code and without a traceback."""
        output.console.width = width
        environ = {
            "ROOM_API_URL": self.url,
            "ROOM_API_TOKEN": token,
            "CI_SECRET": "ci-word",
            "BILLING_SECRET": "billing-word",
        }
        result = CliRunner().invoke(app, list(words), env=environ, input=typed)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    def file(self, name: str, text: str | bytes) -> str:
        """A file to hand to a command."""
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)


@pytest.fixture(scope="module")
def addresses(postgres_dsn: str) -> Iterator[tuple[str, list[Received]]]:
    """A served API whose URLs lead to a stand-in for ingest."""
    with receiver() as (ingest, taken), served(postgres_dsn, ingest) as url:
        yield url, taken


@pytest.fixture
def room(addresses: tuple[str, list[Received]], tmp_path: Path) -> Command:
    """The command, with the room of ``ROOM_FILE`` applied."""
    url, taken = addresses
    command = Command(url, tmp_path, taken)
    command("apply", "-f", command.file("room.yaml", ROOM_FILE))
    taken.clear()
    return command
