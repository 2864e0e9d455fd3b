"""``room apply``, ``room diff`` and ``room export``: a room as a file, and a file as a room."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from room_cli.connection import connect
from room_cli.failures import DIFFERS, WRONG_INPUT, fail
from room_cli.options import AsJson, Directory, RoomArgument
from room_cli.output import console, json_text, one_line, print_json
from room_cli.room_file import RoomFile, read_room_file
from room_cli.room_file_text import room_file_text
from room_common.contracts.room_document import RoomDocument
from room_common.errors import ConfigurationError

_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red"), "unchanged": ("=", "dim")}

FileArgument = Annotated[Path | None, typer.Argument(metavar="FILE", help="The same as --file.")]
FileOption = Annotated[Path | None, typer.Option("--file", "-f", help="The room file.")]

_SHOWN = 30
_CONTEXT = 10


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(apply)
    app.command()(diff)
    app.command()(export)


def apply(
    path: FileArgument = None,
    file: FileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a room match a file. Shows the difference; URLs of new sources are printed once."""
    answer = _post(path, file, directory, dry_run=dry_run)
    if as_json:
        print_json(answer)
        return
    for change in answer["changes"]:
        for line in _lines(change):
            console.print(line, no_wrap=True, overflow="ellipsis")
    _tell_of_urls_that_end(answer, dry_run=dry_run)
    console.print(_summary(answer, dry_run=dry_run), markup=False)
    for url in answer["urls"]:
        console.print(one_line(f"{url['kind']} {url['name']}: {url['url']}"), markup=False, soft_wrap=True)
    if answer["urls"]:
        console.print("Keep these URLs secret: who knows one can post to it.")
        console.print("`room sources --reveal` shows those of sources again.", markup=False)


def diff(
    path: FileArgument = None,
    file: FileOption = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Show how a room differs from a file, texts in full; exit 4 when it does. Changes nothing."""
    answer = _post(path, file, directory, dry_run=True)
    if as_json:
        print_json(answer)
    else:
        for change in answer["changes"]:
            for line in _whole_lines(change):
                console.print(line, soft_wrap=True)
        _tell_of_urls_that_end(answer, dry_run=True)
        if not answer["changed"]:
            console.print("no difference")
    if answer["changed"]:
        raise typer.Exit(DIFFERS)


def export(
    room: RoomArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write this file.", dir_okay=False)] = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Print a room as a file for `room apply`. It holds no secrets: it refers to those that are stored."""
    api = connect(directory)
    answer = api.get(f"/instances/{api.segment(room)}/export")
    text = json_text(answer["room"]) if as_json else room_file_text(RoomDocument.model_validate(answer["room"]))
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{output} can't be written ({error.strerror})", WRONG_INPUT)
    console.print(f"{room} is in {output}", markup=False, soft_wrap=True)


def _post(path: Path | None, file: Path | None, directory: Path, *, dry_run: bool) -> dict[str, Any]:
    given = file or path
    if given is None or (file is not None and path is not None):
        fail("name one room file: `room apply -f room.yaml`", WRONG_INPUT)
    try:
        room_file = read_room_file(given)
    except ConfigurationError as error:
        fail(str(error), WRONG_INPUT)
    answer: dict[str, Any] = connect(directory).post("/apply", request_body(room_file, dry_run=dry_run))
    return answer


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


def _tell_of_urls_that_end(answer: dict[str, Any], *, dry_run: bool) -> None:
    ends = "would end" if dry_run else "ended"
    for change in answer["changes"]:
        if change["kind"] == "source" and change["action"] == "delete":
            line = f"warning: the URL of source {change['name']} {ends}; if it comes back it gets another one"
            console.print(one_line(line), style="yellow", markup=False, soft_wrap=True)


def _lines(change: dict[str, Any]) -> Iterator[Text]:
    yield _head(change)
    if change["action"] == "update":
        for field in change["fields"]:
            before, after = _differing(str(field["before"]), str(field["after"]))
            yield Text.assemble(("      " + one_line(f"{field['field']}: "), "dim"), f"{before} -> {after}")


def _whole_lines(change: dict[str, Any]) -> Iterator[Text]:
    """A change with all of its values; nothing for what stays as it is."""
    if change["action"] == "unchanged":
        return
    yield _head(change)
    for field in change["fields"]:
        name, before, after = one_line(field["field"]), field["before"], field["after"]
        if change["action"] == "update" and not _is_prose(before) and not _is_prose(after):
            yield Text.assemble((f"    {name}: ", "dim"), one_line(f"{_said(before)} -> {_said(after)}"))
        elif change["action"] == "update":
            yield Text(f"    {name}:", style="dim")
            yield from _changed_lines(_said(before), _said(after))
        elif after not in (None, "", False):
            yield Text.assemble((f"    {name}: ", "dim"), one_line(_said(after)))


def _changed_lines(before: str, after: str) -> Iterator[Text]:
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if not line.startswith("?"):
            style = {"+": "green", "-": "red"}.get(line[0], "dim")
            yield Text(f"      {one_line(line)}".rstrip(), style=style)


def _is_prose(value: object) -> bool:
    return isinstance(value, str) and (len(value) > _SHOWN or "\n" in value)


def _said(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _head(change: dict[str, Any]) -> Text:
    sign, style = _SIGNS[change["action"]]
    text = Text(f"{sign} {change['kind']:<11}", style=style)
    text.append(one_line(change["name"]), style="bold" if change["action"] != "unchanged" else "dim")
    return text


def _differing(before: str, after: str) -> tuple[str, str]:
    """Both texts on one line, cut to where they begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((place for place, (old, new) in pairs if old != new), min(len(before), len(after)))
    start = max(0, same - _CONTEXT) if same + _CONTEXT > _SHOWN else 0
    return _cut(before, start), _cut(after, start)


def _cut(text: str, start: int) -> str:
    head, tail = "..." if start else "", "..." if len(text) > start + _SHOWN else ""
    return head + one_line(text[start : start + _SHOWN]) + tail
