"""The lists: what came in, what it was matched to, what was done about it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from room_cli.connection import Api, connect
from room_cli.failures import WRONG_INPUT, fail
from room_cli.options import AsJson, Directory, RoomName, Rows
from room_cli.output import Column, clock, console, one_line, print_json, printable, show

_ID_END = 12
_ENDINGS = 500

Status = Annotated[str | None, typer.Option("--status", help="Only rows with this status.")]

_DELIVERIES = (
    Column("received", "received_at", clock),
    Column("room", "room", spare=1),
    Column("source", "source"),
    Column("outcome", "outcome"),
    Column("definition / reason", "why", wide=True),
    Column("calls", "llm_calls", right=True, spare=2),
    Column("tokens", "tokens", right=True, spare=3),
)
_BACKLOG = (
    Column("matched", "matched_at", clock),
    Column("room", "room", spare=1),
    Column("source", "source"),
    Column("definition", "definition", wide=True),
    Column("status", "status"),
    Column("tries", "attempts", right=True, spare=2),
)
_CYCLES = (
    Column("started", "started_at", clock),
    Column("room", "room", wide=True),
    Column("why", "reason", spare=1),
    Column("status", "status"),
    Column("events", "events", right=True, spare=2),
    Column("replies", "replies", right=True, spare=3),
    Column("steps", "steps", right=True, spare=4),
    Column("id", "id", lambda value: str(value)[-_ID_END:]),
)
_MESSAGES = (
    Column("written", "created_at", clock),
    Column("room", "room", spare=1),
    Column("channel", "channel", spare=2),
    Column("status", "status"),
    Column("text", "text", wide=True),
)
_INBOX = (
    Column("received", "received_at", clock),
    Column("room", "room", spare=2),
    Column("sender", "sender", spare=1),
    Column("status", "status"),
    Column("reason", "reason", spare=3),
    Column("text", "text", wide=True),
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
    app.command()(sources)
    app.command()(deliveries)
    app.command()(backlog)
    messages = typer.Typer(help="What the agents wrote to people.", invoke_without_command=True)
    messages.callback()(list_messages)
    messages.command("resend")(resend_message)
    app.add_typer(messages, name="messages")
    app.command()(inbox)
    cycles = typer.Typer(help="Runs of the supervisor.", invoke_without_command=True)
    cycles.callback()(list_cycles)
    cycles.command("show")(show_cycle)
    app.add_typer(cycles, name="cycles")


def sources(
    room: RoomName = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Print the URLs too; this is audited.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Webhook sources of every room."""
    api = connect(directory)
    rows = [
        {"room": slug} | row
        for slug in ([room] if room is not None else [item["slug"] for item in api.get("/instances")["items"]])
        for row in api.get(f"/instances/{slug}/sources")["items"]
    ]
    if reveal:
        rows = [row | {"url": api.post(f"/sources/{row['id']}/reveal")["url"]} for row in rows]
    show(rows, _SOURCES, as_json=as_json, empty="no sources: `room apply -f room.yaml` makes some")
    if reveal and not as_json:
        for row in rows:
            line = one_line(f"{row['room']} {row['name']}: {row['url']}")
            console.print(line, markup=False, soft_wrap=True)


def deliveries(
    room: RoomName = None,
    source: Annotated[str | None, typer.Option("--source", "-s", help="Only this source (its name).")] = None,
    outcome: Annotated[str | None, typer.Option("--outcome", "-o", help="Only this outcome.")] = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Every item of every delivery, and what became of it."""
    rows = connect(directory).items("/deliveries", last, room=room, source=source, outcome=outcome)
    shown = rows if as_json else [row | {"why": row["definition"] or row["reason"]} for row in rows]
    show(shown, _DELIVERIES, as_json=as_json, empty="no deliveries yet: `room sources --reveal` shows where to post")


def backlog(
    room: RoomName = None,
    status: Status = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Matched events and what became of them."""
    rows = connect(directory).items("/backlog", last, room=room, status=status)
    show(rows, _BACKLOG, as_json=as_json, empty="no events have matched")


def list_messages(
    context: typer.Context,
    room: RoomName = None,
    status: Status = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """What the agents wrote to people."""
    if context.invoked_subcommand is not None:
        return
    rows = connect(directory).items("/messages", last, room=room, status=status)
    show(rows, _MESSAGES, as_json=as_json, empty="no messages yet")


def resend_message(
    message_id: Annotated[UUID, typer.Argument(metavar="ID", help="Id of a message, from `room messages --json`.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Send a failed message again, or one of which nobody knows whether it was sent."""
    message = connect(directory).post(f"/messages/{message_id}/resend", None)
    if as_json:
        print_json(message)
    else:
        console.print(f"message {message_id} is queued again", markup=False)


def inbox(
    room: RoomName = None,
    status: Status = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """What people answered, and its fate."""
    rows = connect(directory).items("/inbox", last, room=room, status=status)
    show(rows, _INBOX, as_json=as_json, empty="no replies yet: `room reply ROOM TEXT` sends one")


def list_cycles(
    context: typer.Context,
    room: RoomName = None,
    status: Status = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Runs of the supervisor; `room cycles show ID` prints a transcript."""
    if context.invoked_subcommand is not None:
        return
    rows = connect(directory).items("/cycles", last, room=room, status=status)
    show(rows, _CYCLES, as_json=as_json, empty="no cycle has run yet")


def show_cycle(
    cycle: Annotated[str, typer.Argument(help="The cycle's id or its end as `room cycles` shows it, or `last`.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Print the transcript of a cycle."""
    api = connect(directory)
    cycle_id = _cycle_id(api, cycle)
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


def _cycle_id(api: Api, cycle: str) -> str:
    if cycle == "last":
        rows = api.items("/cycles", 1)
        if not rows:
            fail("no cycle has run yet")
        return str(rows[0]["id"])
    with suppress(ValueError):
        return str(UUID(cycle))
    found = [
        row["id"] for row in api.items("/cycles", _ENDINGS) if len(cycle) >= 4 and row["id"].endswith(cycle.lower())
    ]
    if len(found) != 1:
        what = "several cycles have an id that ends in" if found else f"none of the latest {_ENDINGS} cycles has the id"
        fail(f"{what} {cycle!r}; `room cycles --json` shows whole ids", WRONG_INPUT)
    return str(found[0])


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
