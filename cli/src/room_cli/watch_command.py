"""``room watch``: what happens, as it happens."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from room_cli.connection import connect
from room_cli.lookup import end_of_id, find_id
from room_cli.options import AsJson, Directory, RoomName
from room_cli.output import Line, one_line, print_timeline


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(watch)


def watch(
    cycle: Annotated[
        str | None,
        typer.Argument(metavar="CYCLE", help="Follow this cycle to its end: its id, the end of it, or `last`."),
    ] = None,
    room: RoomName = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Show what happens as it happens: of all rooms, of one, or of one cycle. Ctrl-C ends it."""
    api = connect(directory)
    path = "/feed"
    if cycle is not None:
        path = f"/cycles/{find_id(api, cycle, path='/cycles', what='cycle')}/feed"
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for name, data in api.events(path, room=None if cycle is not None else room):
            if as_json:
                sys.stdout.write(json.dumps({"event": name, "data": data}, ensure_ascii=True) + "\n")
                sys.stdout.flush()
            elif (line := line_of(name, data)) is not None:
                print_timeline([line])
            if name == "end":
                return


def line_of(name: str, data: Mapping[str, Any]) -> Line | None:
    """An event of a feed in one line, None for what says nothing to a person."""
    write = _LINES.get(name)
    return None if write is None else write(data)


def _room(data: Mapping[str, Any]) -> Line:
    if data.get("gone"):
        return Line(None, "room", f"{data['slug']} is gone")
    state = "parked" if data.get("parked_reason") else "running" if data.get("running") else "idle"
    return Line(
        None,
        "room",
        f"{data['slug']}: {state if data.get('enabled') else 'disabled'}, {data.get('pending', 0)} pending, "
        f"{data.get('failed', 0)} failed, {data.get('unread', 0)} unread",
    )


def _cycle(data: Mapping[str, Any]) -> Line:
    text = f"{data['room']} {end_of_id(data['id'])}: {data['status']}, {data['steps']} steps"
    return Line(data.get("finished_at") or data.get("started_at"), "cycle", text)


def _service(data: Mapping[str, Any]) -> Line:
    said = "is gone" if data.get("gone") else f"held by {data['held_reason']}" if data.get("held_reason") else "works"
    lag = f", {data['lag']} wait for it" if data.get("lag") else ""
    return Line(data.get("seen_at"), "service", f"{data['service']} {said}{lag}")


def _activity(data: Mapping[str, Any]) -> Line:
    return Line(data.get("occurred_at"), str(data.get("kind")), f"{data.get('room')}: {one_line(str(data['content']))}")


def _transcript(data: Mapping[str, Any]) -> Line:
    content = data["content"]
    calls = [call.get("function", {}) for call in content.get("tool_calls") or ()]
    said = [content.get("content") or "", *(f"-> {call.get('name')}({call.get('arguments')})" for call in calls)]
    return Line(
        data.get("created_at"), str(data["role"]), "\n".join(part for part in said if isinstance(part, str) and part)
    )


def _message(data: Mapping[str, Any]) -> Line:
    return Line(data.get("created_at"), str(data["status"]), f"message {end_of_id(data['id'])}: {data.get('text', '')}")


_LINES: Final[Mapping[str, Callable[[Mapping[str, Any]], Line]]] = {
    "room": _room,
    "cycle": _cycle,
    "service": _service,
    "activity": _activity,
    "transcript": _transcript,
    "message": _message,
    "gap": lambda data: Line(None, "gap", "more happened than is shown here: `room activity` has all of it"),
    "cut": lambda data: Line(None, "cut", f"the feed ended ({data.get('reason')}): watch again"),
    "end": lambda data: Line(None, "end", "the cycle is over"),
}
