"""How commands fail: a message that says what to do, and an exit code.

0 done, 1 it failed, 2 the input is wrong, 3 nothing to talk to (no stack runs here, or the API does not answer).
"""

from __future__ import annotations

from typing import Final, NoReturn

import typer
from rich.console import Console

FAILED: Final = 1
WRONG_INPUT: Final = 2
UNREACHABLE: Final = 3

_errors = Console(stderr=True, highlight=False)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print ``message`` to standard error and exit with ``code``."""
    _errors.print(f"room: {message}", markup=False, soft_wrap=True)
    raise typer.Exit(code)
