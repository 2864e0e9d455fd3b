"""How commands fail: a message that says what to do, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

import typer
from rich.console import Console

from room_cli.output import printable
from room_common.errors import ConfigurationError, DependencyUnavailable, RoomError

FAILED: Final = 1
WRONG_INPUT: Final = 2
UNREACHABLE: Final = 3
DIFFERS: Final = 4

EXIT_CODES: Final[Mapping[int, str]] = {
    0: "Done.",
    FAILED: "It failed, or it was refused: the message says why.",
    WRONG_INPUT: "The command line, a file or a setting is wrong.",
    UNREACHABLE: "Nothing to talk to: no stack runs here, or the API, database or broker does not answer.",
    DIFFERS: "Only `room diff`: the room differs from the file.",
}
"""What the exit code of a command says."""

_errors = Console(stderr=True, highlight=False, emoji=False)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print ``message`` to standard error and exit with ``code``."""
    first, *more = printable(message).splitlines() or [""]
    for line in (f"room: {first}", *(line if line.startswith(" ") else f"room: {line}" for line in more)):
        _errors.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(code)


def fail_of(error: RoomError) -> NoReturn:
    """Print what an error says and exit with the code of its kind."""
    if isinstance(error, ConfigurationError):
        fail(str(error), WRONG_INPUT)
    fail(str(error), UNREACHABLE if isinstance(error, DependencyUnavailable) else FAILED)
