"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Directory = Annotated[
    Path, typer.Option("--directory", "-C", help="Folder whose .room holds the stack.", file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rows = Annotated[int, typer.Option("--last", "-n", min=1, max=10_000, help="Rows, newest first.")]
RoomName = Annotated[str | None, typer.Option("--room", "-r", help="Only this room (its slug).")]
