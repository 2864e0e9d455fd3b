"""The lists: what came in, what it was matched to, what was done about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from room_cli.change_commands import rotate
from room_cli.connection import connect
from room_cli.failures import WRONG_INPUT, fail
from room_cli.lookup import ALL, end_of_id, find_id, in_rooms
from room_cli.moments import since_of
from room_cli.options import AsJson, Directory, RoomArgument, RoomName, Rows, Since
from room_cli.output import Column, clock, console, one_line, print_fields, print_json, printable, show
from room_cli.payload import Raw, print_payload

_LATEST = 500

Status = Annotated[str | None, typer.Option("--status", metavar="STATUS", help="Only rows with this status.")]

EventArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The event's id or its end as `room backlog` shows it, or `last`.")
]

_BACKLOG = (
    Column("matched", "matched_at", clock),
    Column("room", "room", spare=1),
    Column("source", "source"),
    Column("definition", "definition", wide=True),
    Column("status", "status"),
    Column("tries", "attempts", right=True, spare=3),
    Column("id", "id", end_of_id, spare=2),
)
_CYCLES = (
    Column("started", "started_at", clock),
    Column("room", "room", wide=True),
    Column("why", "reason", spare=1),
    Column("status", "status"),
    Column("events", "events", right=True, spare=2),
    Column("replies", "replies", right=True, spare=3),
    Column("steps", "steps", right=True, spare=4),
    Column("id", "id", end_of_id),
)
_MESSAGES = (
    Column("written", "created_at", clock),
    Column("room", "room", spare=1),
    Column("channel", "channel", spare=3),
    Column("status", "status"),
    Column("text", "text", wide=True),
    Column("id", "id", end_of_id, spare=2),
)
_ROOMS = (
    Column("room", "slug"),
    Column("name", "name", wide=True),
    Column("state", "state"),
    Column("channel", "channel", spare=1),
    Column("sources", "sources", right=True, spare=2),
    Column("pending", "pending", right=True, spare=3),
)
_INBOX = (
    Column("received", "received_at", clock),
    Column("room", "room", spare=2),
    Column("sender", "sender", spare=1),
    Column("status", "status"),
    Column("reason", "reason", spare=4),
    Column("text", "text", wide=True),
    Column("id", "id", end_of_id, spare=3),
)
_SOURCES = (
    Column("room", "room"),
    Column("source", "name", wide=True),
    Column("type", "type", spare=2),
    Column("enabled", "enabled", lambda value: "yes" if value else "no", spare=3),
    Column("signed", "signed", lambda value: "yes" if value else "no", spare=4),
    Column("rules", "definitions", right=True, spare=1),
    Column("last received", "last_received_at", clock),
)


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    rooms = typer.Typer(help="Rooms and how they are.", invoke_without_command=True)
    rooms.callback()(list_rooms)
    rooms.command("show")(show_room)
    app.add_typer(rooms, name="rooms")
    sources = typer.Typer(help="Webhook sources of every room.", invoke_without_command=True)
    sources.callback()(list_sources)
    sources.command("rotate")(rotate)
    app.add_typer(sources, name="sources")
    about = "Matched events and what became of them."
    backlog = typer.Typer(help=about, invoke_without_command=True)
    backlog.callback()(_lister("backlog", _BACKLOG, about, "no events have matched"))
    backlog.command("show")(show_event)
    backlog.command("payload")(show_event_payload)
    backlog.command("retry")(_changer("/backlog", "event", "retry", "Offer a failed event again."))
    backlog.command("complete")(_changer("/backlog", "event", "complete", "Close a pending or failed event."))
    app.add_typer(backlog, name="backlog")
    messages = typer.Typer(help="What the agents wrote to people.", invoke_without_command=True)
    messages.callback()(_lister("messages", _MESSAGES, "What the agents wrote to people.", "no messages yet"))
    messages.command("show")(show_message)
    messages.command("resend")(resend_message)
    app.add_typer(messages, name="messages")
    no_replies = "no replies yet: `room reply ROOM TEXT` sends one"
    about = "What people answered, and its fate."
    inbox = typer.Typer(help=about, invoke_without_command=True)
    inbox.callback()(_lister("inbox", _INBOX, about, no_replies))
    inbox.command("retry")(_changer("/inbox", "reply", "retry", "Let the room read a failed reply again."))
    app.add_typer(inbox, name="inbox")
    cycles = typer.Typer(help="Runs of the supervisor.", invoke_without_command=True)
    cycles.callback()(
        _lister(
            "cycles",
            _CYCLES,
            "Runs of the supervisor; `room cycles show ID` prints a transcript.",
            "no cycle has run yet",
        )
    )
    cycles.command("show")(show_cycle)
    app.add_typer(cycles, name="cycles")


def _lister(path: str, columns: Sequence[Column], about: str, empty: str) -> Callable[..., None]:
    """A command that shows a list of the API whose rows have a room and a status."""

    def command(
        context: typer.Context,
        room: RoomName = None,
        status: Status = None,
        since: Since = None,
        last: Rows = 30,
        directory: Directory = Path(),
        as_json: AsJson = False,
    ) -> None:
        if context.invoked_subcommand is None:
            rows = connect(directory).items(f"/{path}", last, room=room, status=status, since=since_of(since))
            show(rows, columns, as_json=as_json, empty=empty)

    command.__doc__ = about
    return command


def _changer(path: str, what: str, verb: str, about: str) -> Callable[..., None]:
    """A command that does ``verb`` to one of the latest rows of a list."""

    def command(
        row: Annotated[str, typer.Argument(metavar="ID", help="Its id, the end of it, or `last`.")],
        directory: Directory = Path(),
        as_json: AsJson = False,
    ) -> None:
        api = connect(directory)
        changed = api.post(f"{path}/{find_id(api, row, path=path, what=what)}/{verb}")
        if as_json:
            print_json(changed)
        else:
            console.print(f"{what} {changed['id']} is {changed['status']} now", markup=False, soft_wrap=True)

    command.__doc__ = about
    return command


def list_rooms(context: typer.Context, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Rooms and how they are."""
    if context.invoked_subcommand is not None:
        return
    rows = connect(directory).items("/instances", ALL)
    shown = rows if as_json else [row | {"state": _state_of_room(row)} for row in rows]
    show(shown, _ROOMS, as_json=as_json, empty="no rooms: `room apply -f room.yaml` makes one")


def _state_of_room(row: Mapping[str, Any]) -> str:
    if row["status"] != "active" or not row["enabled"]:
        return "disabled"
    if row["parked_reason"] is not None:
        return "parked"
    return "running" if row["running"] else "idle"


def show_room(room: RoomArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """One room with its mandate, and whom it talks to."""
    api = connect(directory)
    found = api.get(f"/instances/{api.segment(room)}")
    if as_json:
        print_json(found)
    else:
        print_fields(found)


def list_sources(
    context: typer.Context,
    room: RoomName = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Print the URLs too; this is audited.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Webhook sources of every room."""
    if context.invoked_subcommand is not None:
        return
    api = connect(directory)
    rows = in_rooms(api, room, "sources")
    if reveal:
        rows = [row | {"url": api.post(f"/sources/{row['id']}/reveal")["url"]} for row in rows]
    show(rows, _SOURCES, as_json=as_json, empty="no sources: `room apply -f room.yaml` makes some")
    if reveal and not as_json:
        for row in rows:
            line = one_line(f"{row['room']} {row['name']}: {row['url']}")
            console.print(line, markup=False, soft_wrap=True)


def show_event(event: EventArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """One matched event: what it matched, and what became of it."""
    api = connect(directory)
    found = api.get(f"/backlog/{find_id(api, event, path='/backlog', what='event')}")
    if as_json:
        print_json(found)
    else:
        print_fields(found)


def show_event_payload(
    event: EventArgument,
    raw: Raw = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """The payload of an event as a model sees it. This is audited."""
    api = connect(directory)
    payload = api.get(f"/backlog/{find_id(api, event, path='/backlog', what='event')}/payload")
    print_payload(payload, raw=raw, as_json=as_json)


def show_message(
    message: Annotated[str, typer.Argument(metavar="ID", help="The message's id or its end, or `last`.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Print one of the latest messages as it was written."""
    api = connect(directory)
    message_id = find_id(api, message, path="/messages", what="message")
    found = next((row for row in api.items("/messages", _LATEST) if row["id"] == message_id), None)
    if found is None:
        fail(f"that message is not among the latest {_LATEST}", WRONG_INPUT)
    if as_json:
        print_json(found)
        return
    head = f"{clock(found['created_at'])} {found['room']} -> {found['target']} ({found['channel']}): {found['status']}"
    console.print(Text(one_line(head), style="bold cyan"), soft_wrap=True)
    console.print(printable(found["text"]), markup=False, soft_wrap=True)


def resend_message(
    message: Annotated[
        str, typer.Argument(metavar="ID", help="The message's id or its end as `room messages` shows it, or `last`.")
    ],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Send a failed message again, or one of which nobody knows whether it was sent."""
    api = connect(directory)
    message_id = find_id(api, message, path="/messages", what="message")
    answer = api.post(f"/messages/{message_id}/resend", None)
    if as_json:
        print_json(answer)
    else:
        console.print(f"message {message_id} is queued again", markup=False)


def show_cycle(
    cycle: Annotated[
        str, typer.Argument(metavar="ID", help="The cycle's id or its end as `room cycles` shows it, or `last`.")
    ],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Print the transcript of a cycle."""
    api = connect(directory)
    cycle_id = find_id(api, cycle, path="/cycles", what="cycle")
    found = api.get(f"/cycles/{cycle_id}")
    transcript = api.get(f"/cycles/{cycle_id}/messages")["items"]
    if as_json:
        print_json(found | {"messages": transcript})
        return
    console.print(
        f"cycle {found['id']} of {found['room']}: {found['status']}, {found['steps']} steps, "
        f"{found['input_tokens']} + {found['output_tokens']} tokens",
        markup=False,
        soft_wrap=True,
    )
    for message in transcript:
        _print_message(message)


def _print_message(message: dict[str, Any]) -> None:
    content = message["content"]
    console.print(Text(f"\n{clock(message['created_at'])} {message['role']}", style="bold cyan"))
    text = content.get("content")
    if isinstance(text, str) and text:
        console.print(printable(text), markup=False, soft_wrap=True)
    for call in content.get("tool_calls") or ():
        function = call.get("function", {})
        line = f"-> {function.get('name')}({function.get('arguments')})"
        console.print(printable(line), markup=False, soft_wrap=True, style="yellow")
