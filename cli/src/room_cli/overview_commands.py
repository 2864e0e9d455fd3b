"""How an installation is doing: ``room services``, ``stats``, ``activity`` and ``channels``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from room_cli.connection import connect
from room_cli.lookup import ALL, in_rooms
from room_cli.moments import since_of
from room_cli.options import AsJson, Directory, RoomName, Rows, Since
from room_cli.output import Column, clock, console, one_line, print_json, show
from room_common.contracts.channel_config import REPLYING

_SERVICES = (
    Column("service", "service"),
    Column("process", "process", wide=True),
    Column("version", "version", spare=3),
    Column("seen", "age_seconds", lambda value: f"{value:.0f} s ago", spare=1),
    Column("lag", "lag", right=True, spare=2),
    Column("held by", "held_reason"),
)
_ACTIVITY = (
    Column("when", "occurred_at", clock),
    Column("room", "room", spare=1),
    Column("kind", "kind"),
    Column("what", "content", wide=True),
)
_CHANNELS = (
    Column("room", "room"),
    Column("channel", "type"),
    Column("enabled", "enabled", lambda value: "yes" if value else "no"),
    Column("delivery", "delivery", spare=1),
    Column("since", "created_at", clock, spare=2),
)
_STATS = (Column("what", "what"), Column("status", "status", wide=True), Column("number", "number", right=True))


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(services)
    app.command()(stats)
    app.command()(activity)
    app.command()(channels)


def services(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """The processes of this installation: version, lag, what holds them, when they were seen."""
    rows = connect(directory).items("/services", ALL)
    show(rows, _SERVICES, as_json=as_json, empty="no process reports to this database")


def stats(room: RoomName = None, since: Since = None, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """What came in and what became of it, counted: of the last day, unless --since."""
    found = connect(directory).get("/stats", room=room, since=since_of(since))
    if as_json:
        print_json(found)
        return
    show(_counts(found), _STATS, as_json=False, empty="nothing happened")


def activity(
    room: RoomName = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only this kind, as the list names it.")
    ] = None,
    since: Since = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """What happened in the rooms: the log that agents look back on."""
    rows = connect(directory).items("/activity", last, room=room, kind=kind, since=since_of(since))
    show(rows, _ACTIVITY, as_json=as_json, empty="nothing happened yet")


def channels(
    room: RoomName = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Print the URLs for replies too; this is audited.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Channels of every room: where agents write, and where answers come in."""
    api = connect(directory)
    rows = in_rooms(api, room, "channels")
    if reveal:
        takes_replies = [row for row in rows if row["enabled"] and row["type"] in REPLYING]
        for row in takes_replies:
            row["url"] = api.post(f"/channels/{row['id']}/reveal")["url"]
    show(rows, _CHANNELS, as_json=as_json, empty="no channels: `channel:` in a room file makes one")
    if reveal and not as_json:
        for row in rows:
            if "url" in row:
                console.print(one_line(f"{row['room']} {row['type']}: {row['url']}"), markup=False, soft_wrap=True)


def _counts(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {"what": "deliveries", "status": name, "number": f"{counted['items']:,}"}
        for name, counted in found["outcomes"].items()
    ]
    for what in ("events", "cycles", "messages", "tokens"):
        rows += [{"what": what, "status": name, "number": f"{number:,}"} for name, number in found[what].items()]
    return rows
