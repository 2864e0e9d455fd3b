"""Telling a room what to do: ``room tick``, ``room resume``, ``room tools``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from room_cli.connection import connect
from room_cli.options import AsJson, Directory, RoomArgument
from room_cli.output import Column, clock, console, one_line, print_json, show

_TOOLS = (
    Column("tool", "tool", wide=True),
    Column("kind", "kind", spare=2),
    Column("state", "state"),
    Column("verified only", "verified_only", lambda value: "yes" if value else "no", spare=1),
    Column("last seen", "checked_at", clock, spare=3),
)


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(tick)
    app.command()(resume)
    tools = typer.Typer(help="Outside tools of a room.", no_args_is_help=True)
    tools.command("list")(list_tools)
    tools.command("confirm")(confirm_tools)
    app.add_typer(tools, name="tools")


def tick(room: RoomArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Let a room look for work now instead of at the next tick."""
    api = connect(directory)
    answer = api.post(f"/instances/{api.segment(room)}/tick")
    if as_json:
        print_json(answer)
        return
    said = {"woken": "looks for work now", "running": "is in a cycle, and looks again when that has ended"}
    console.print(one_line(f"{room} {said[answer['room']]}"), markup=False)


def resume(room: RoomArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Let a room run again that was parked after failed cycles."""
    api = connect(directory)
    answer = api.post(f"/instances/{api.segment(room)}/resume")
    if as_json:
        print_json(answer)
        return
    console.print(one_line(f"{room} runs again; it was parked for: {answer['parked_for']}"), markup=False)


def list_tools(room: RoomArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Servers and functions of a room, how they were last found, and what of them is on."""
    api = connect(directory)
    items = api.get(f"/instances/{api.segment(room)}/tools")["items"]
    if as_json:
        print_json(items)
        return
    show([row for item in items for row in _rows(item)], _TOOLS, as_json=False, empty="no tools")
    for item in items:
        if item["error"] is not None:
            console.print(one_line(f"{item['name']}: {item['error']}"), markup=False)
        if any(tool["state"] == "changed" for tool in item["tools"]):
            hint = f"{item['name']} says something else of its tools than before: `room tools confirm` takes them so"
            console.print(one_line(hint), markup=False)


def confirm_tools(
    room: RoomArgument,
    name: Annotated[str, typer.Argument(help="The server's name.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Take a server's tools as they were last seen."""
    api = connect(directory)
    answer = api.post(f"/instances/{api.segment(room)}/tools/{api.segment(name)}/confirm")
    if as_json:
        print_json(answer)
        return
    names = ", ".join(answer["confirmed"]) or "nothing had changed"
    console.print(one_line(f"confirmed: {names}"), markup=False)


def _rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    common = {"kind": item["kind"], "checked_at": item["checked_at"]}
    if item["kind"] == "python":
        state = "off" if not item["enabled"] else item["error"] or "on"
        guarded = any(tool["verified_only"] for tool in item["tools"])
        return [common | {"tool": item["name"], "state": state, "verified_only": guarded}]
    return [
        common
        | {
            "tool": f"{item['name']}__{tool['name']}",
            "state": tool["state"] if item["enabled"] else "off",
            "verified_only": tool["verified_only"],
        }
        for tool in item["tools"]
    ]
