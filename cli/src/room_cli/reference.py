"""Writes docs/command-line.md from the commands themselves: ``python -m room_cli.reference FILE`` (``make documents``).

With ``--check`` it changes nothing and exits with 1 when the document is not up to date.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

from room_cli.__main__ import app
from room_cli.failures import EXIT_CODES
from room_common.generated import write_or_check

_HEAD: Final = """\
# The command line

Made from the code by `make documents`; `room COMMAND --help` says the same with every option explained.

`room` talks to the API of the stack that runs in this folder (`room up`; `-C` names another folder). For any other
installation set `ROOM_API_URL`, and `ROOM_API_TOKEN` or `ROOM_API_TOKEN_FILE`. `room doctor`, `topics`, `migrate`,
`compact` and `recover` go to Kafka and PostgreSQL themselves: they take the settings of the services
([configuration.md](configuration.md)), from the environment or from the stack in this folder.

Lists are tables for people; `--json` prints everything that is known, with whole ids, for programs. Where a command
takes an id it also takes its end as lists show it, or `last`.

## Completion

`room --install-completion` sets up the shell in use (bash, zsh, fish or PowerShell), `room --show-completion` prints
what it would add. Commands and options are completed, and so are the names of rooms, sources and definitions: these are
asked of the API, and there are none where it does not answer within two seconds.

## Exit codes

| code | meaning |
| --- | --- |
"""
_WIDTH: Final = 120
_AFTER_CODES: Final = """\

Messages about what went wrong go to standard error and begin with `room:`.

"""


def reference() -> str:
    """The whole document."""
    root: Any = typer.main.get_command(app)
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return _HEAD + codes + _AFTER_CODES + "## Commands\n\n" + "".join(_entries(root, "room"))


def _entries(group: TyperGroup, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        here = f"{path} {name}"
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield _entry(here, command)
        if isinstance(command, TyperGroup):
            yield from _entries(command, here)


def _entry(path: str, command: Any) -> str:
    words = [path]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = str(parameter.metavar or parameter.name.upper())
            words.append(name if parameter.required else f"[{name}]")
    options = [
        min(parameter.opts, key=lambda text: (not text.startswith("--"), len(text)))
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.required and parameter.name != "help"
    ]
    words += [
        f"{parameter.opts[0]} {parameter.metavar or 'FILE'}"
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.required
    ]
    told = " ".join(str(command.help).split())
    listed = f" Options: {', '.join(f'`{option}`' for option in options)}." if options else ""
    return textwrap.fill(f"- **`{' '.join(words)}`**: {told}{listed}", _WIDTH, subsequent_indent="  ") + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write or check the document; the exit code."""
    return write_or_check(reference(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
