"""``room enable``, ``room disable``, ``room delete`` and ``room sources rotate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from room_cli.connection import Api, connect
from room_cli.failures import FAILED, fail
from room_cli.lookup import find_definition, find_source
from room_cli.options import AsJson, Directory, RoomName, SourceArgument, TargetArgument
from room_cli.output import console, one_line, print_json


class Kind(StrEnum):
    """What can be switched and deleted."""

    room = "room"
    source = "source"
    definition = "definition"


KindArgument = Annotated[Kind, typer.Argument(help="What it is.")]

_DAY = 24 * 3600
_GOES = {
    Kind.room: "its URLs end at once, a cycle that runs is cut off, and messages that wait are not sent",
    Kind.source: "its URLs end at once, and its definitions go with it",
    Kind.definition: "it is not asked any more; events that wait for it go on",
}


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(enable)
    app.command()(disable)
    app.command()(delete)


def enable(
    kind: KindArgument,
    name: TargetArgument,
    room: RoomName = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Switch a room, source or definition on. On also frees a room that was parked for its failures."""
    _switch(kind, name, room, directory, enabled=True, as_json=as_json)


def disable(
    kind: KindArgument,
    name: TargetArgument,
    room: RoomName = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Switch a room, source or definition off. What comes in meanwhile is recorded and dropped."""
    _switch(kind, name, room, directory, enabled=False, as_json=as_json)


def delete(
    kind: KindArgument,
    name: TargetArgument,
    room: RoomName = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Delete a room, source or definition, after asking."""
    api = connect(directory)
    path = _path(api, kind, name, room)
    if not yes and not typer.confirm(one_line(f"Delete the {kind} {name}? {_GOES[kind]}."), err=True):
        fail("nothing was deleted", FAILED)
    answer = api.delete(path)
    if as_json:
        print_json(answer)
        return
    console.print(one_line(f"{kind} {name} is deleted"), markup=False, soft_wrap=True)
    if kind is Kind.room:
        console.print(
            f"{answer['sources']} sources and {answer['urls']} URLs ended, {answer['messages']} messages are not sent"
            + (", its cycle was cut off" if answer["cycle_fenced"] else ""),
            markup=False,
            soft_wrap=True,
        )


def rotate(
    name: SourceArgument,
    room: RoomName = None,
    grace: Annotated[
        int, typer.Option("--grace", min=0, max=30 * _DAY, help="Seconds that the URL of before still works.")
    ] = _DAY,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a new URL for a source and print it, this once. The one of before works on for a while."""
    api = connect(directory)
    source = find_source(api, name, room)
    answer = api.post(f"/sources/{source['id']}/rotate-token", {"grace_seconds": grace})
    if as_json:
        print_json(answer)
        return
    console.print(one_line(f"{source['room']} {name}: {answer['url']}"), markup=False, soft_wrap=True)
    if answer["old_valid_until"] is not None:
        console.print(one_line(f"the URL of before works until {answer['old_valid_until']}"), markup=False)


def _switch(kind: Kind, name: str, room: str | None, directory: Path, *, enabled: bool, as_json: bool) -> None:
    api = connect(directory)
    answer = api.patch(_path(api, kind, name, room), {"enabled": enabled})
    if as_json:
        print_json(answer)
        return
    state = ("on" if enabled else "off") + ("" if answer["changed"] else " already")
    console.print(one_line(f"{kind} {name} is {state}"), markup=False, soft_wrap=True)


def _path(api: Api, kind: Kind, name: str, room: str | None) -> str:
    if kind is Kind.room:
        return f"/instances/{api.segment(name)}"
    found = find_source(api, name, room) if kind is Kind.source else find_definition(api, name, room)
    return f"/{kind}s/{found['id']}"
