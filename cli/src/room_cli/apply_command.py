"""``room apply``: make an instance match a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from room_cli.connection import connect
from room_cli.failures import WRONG_INPUT, fail
from room_cli.options import AsJson, Directory
from room_cli.output import console, one_line, print_json
from room_cli.room_file import RoomFile, read_room_file
from room_common.errors import ConfigurationError

_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red"), "unchanged": ("=", "dim")}

_SHOWN = 30
_CONTEXT = 10


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(apply)


def apply(
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The same as --file.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The room file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a room match a file. Shows the difference; URLs of new sources are printed once."""
    given = file or path
    if given is None or (file is not None and path is not None):
        fail("name one room file: `room apply -f room.yaml`", WRONG_INPUT)
    try:
        room_file = read_room_file(given)
    except ConfigurationError as error:
        fail(str(error), WRONG_INPUT)
    answer = connect(directory).post("/apply", request_body(room_file, dry_run=dry_run))
    if as_json:
        print_json(answer)
        return
    for change in answer["changes"]:
        for line in _lines(change):
            console.print(line, no_wrap=True, overflow="ellipsis")
    console.print(_summary(answer, dry_run=dry_run), markup=False)
    for url in answer["urls"]:
        console.print(one_line(f"{url['kind']} {url['name']}: {url['url']}"), markup=False, soft_wrap=True)
    if answer["urls"]:
        console.print("Keep these URLs secret: who knows one can post to it.")
        console.print("`room sources --reveal` shows those of sources again.", markup=False)


def request_body(room_file: RoomFile, *, dry_run: bool) -> dict[str, Any]:
    """The body of ``POST /apply``."""
    return {
        "room": room_file.document.model_dump(mode="json"),
        "secrets": {name: list(values) for name, values in room_file.secrets.items()},
        "channel_secrets": dict(room_file.channel_secrets),
        "tool_secrets": dict(room_file.tool_secrets),
        "dry_run": dry_run,
    }


def _summary(answer: dict[str, Any], *, dry_run: bool) -> str:
    if not answer["changed"]:
        return "nothing to change"
    count = sum(change["action"] != "unchanged" for change in answer["changes"])
    return f"{count} to change (nothing was changed: --dry-run)" if dry_run else f"{count} changed"


def _lines(change: dict[str, Any]) -> Iterator[Text]:
    sign, style = _SIGNS[change["action"]]
    text = Text(f"{sign} {change['kind']:<11}", style=style)
    text.append(one_line(change["name"]), style="bold" if change["action"] != "unchanged" else "dim")
    yield text
    if change["action"] == "update":
        for field in change["fields"]:
            before, after = _differing(str(field["before"]), str(field["after"]))
            yield Text.assemble(("      " + one_line(f"{field['field']}: "), "dim"), f"{before} -> {after}")


def _differing(before: str, after: str) -> tuple[str, str]:
    """Both texts on one line, cut to where they begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((place for place, (old, new) in pairs if old != new), min(len(before), len(after)))
    start = max(0, same - _CONTEXT) if same + _CONTEXT > _SHOWN else 0
    return _cut(before, start), _cut(after, start)


def _cut(text: str, start: int) -> str:
    head, tail = "..." if start else "", "..." if len(text) > start + _SHOWN else ""
    return head + one_line(text[start : start + _SHOWN]) + tail
