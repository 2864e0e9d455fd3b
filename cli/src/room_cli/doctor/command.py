"""The command ``room doctor``."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from room_cli.connection import service_environment
from room_cli.failures import FAILED, UNREACHABLE, fail
from room_cli.options import AsJson, Directory
from room_cli.output import console, counted, one_line, print_json, printable

_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red", "skipped": "dim"}


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(doctor)


def doctor(
    model: Annotated[
        bool, typer.Option("--model/--no-model", help="Ask the model one tiny question per tier, which costs a little.")
    ] = True,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Look at everything that Room needs, and say what to do about what is wrong. Exit 1 when something is.

    Where the settings of the services are: on a stack's machine, or with their variables in the environment.
    """
    # Late: it loads the clients of everything, which other commands need not wait for.
    from room_cli.doctor.checks import Doctor

    found = asyncio.run(Doctor(service_environment(directory), ask_model=model).examine())
    if all(finding.state == "skipped" for finding in found):
        fail(
            "nothing can be looked at from here: start a stack with `room up`, or export the settings of the services",
            UNREACHABLE,
        )
    problems = sum(finding.state == "problem" for finding in found)
    if as_json:
        print_json({"problems": problems, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            line = Text(f"{finding.state:<8} ", style=_STYLES[finding.state])
            line.append(one_line(finding.check), style="bold")
            line.append(f"  {printable(finding.said)}")
            console.print(line, soft_wrap=True)
            if finding.remedy is not None:
                console.print(Text(f"         {printable(finding.remedy)}", style="dim"), soft_wrap=True)
        warnings = sum(finding.state == "warning" for finding in found)
        said = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}"
        console.print(said if problems or warnings else "all is well")
    if problems:
        raise typer.Exit(FAILED)
