"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from room_cli.completion import definition_names, room_slugs, source_names, targets

Directory = Annotated[
    Path, typer.Option("--directory", "-C", help="Folder whose .room holds the stack.", file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rows = Annotated[
    int, typer.Option("--last", "-n", min=1, max=10_000, metavar="ROWS", help="So many rows, newest first.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From this time on, like 2026-11-30T14:00:00+00:00.")
]
RoomName = Annotated[
    str | None,
    typer.Option("--room", "-r", metavar="ROOM", help="Only this room (its slug).", autocompletion=room_slugs),
]
RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="The room's slug.", autocompletion=room_slugs)]
SourceName = Annotated[
    str | None,
    typer.Option("--source", "-s", metavar="SOURCE", help="Only this source (its name).", autocompletion=source_names),
]
SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The source's name.", autocompletion=source_names)
]
DefinitionNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help="All of its definitions, first asked first.", autocompletion=definition_names
    ),
]
TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A room's slug, a source's name, or a definition's (`source / name`).",
        autocompletion=targets,
    ),
]
