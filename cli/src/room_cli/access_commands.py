"""``room tokens`` and ``room audit``: who may use this installation, and what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from room_cli.connection import connect
from room_cli.lookup import ALL
from room_cli.moments import since_of
from room_cli.options import AsJson, Directory, RoomName, Rows, Since
from room_cli.output import Column, clock, console, one_line, print_json, show

_TOKENS = (
    Column("id", "id"),
    Column("name", "name", wide=True),
    Column("role", "role"),
    Column("made", "created_at", clock, spare=1),
    Column("revoked", "revoked_at", clock),
)
_AUDIT = (
    Column("when", "occurred_at", clock),
    Column("who", "actor", spare=1),
    Column("action", "action"),
    Column("room", "room", spare=2),
    Column("of what", "subject", wide=True),
)


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    tokens = typer.Typer(help="Who may use the API and the panel.", invoke_without_command=True)
    tokens.callback()(list_tokens)
    tokens.command("make")(make_token)
    tokens.command("revoke")(revoke_token)
    app.add_typer(tokens, name="tokens")
    app.command()(audit)


def list_tokens(context: typer.Context, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Who may use the API and the panel; revoked tokens too."""
    if context.invoked_subcommand is None:
        show(connect(directory).items("/tokens", ALL), _TOKENS, as_json=as_json, empty="nobody has a token")


def make_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom it is for.")],
    operator: Annotated[bool, typer.Option("--operator", help="They may change and read everything.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Let somebody in, as a viewer unless --operator. The token is printed this once."""
    role = "operator" if operator else "viewer"
    answer = connect(directory).post("/tokens", {"name": name, "role": role})
    if as_json:
        print_json(answer)
        return
    console.print(one_line(answer["token"]), markup=False, soft_wrap=True)
    said = f"for {answer['name']}, {answer['role']}; `room tokens revoke {answer['id']}` ends it"
    console.print(one_line(said), markup=False, soft_wrap=True)


def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="The token's id, from `room tokens`.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """End a token, and what was opened with it, at once."""
    api = connect(directory)
    answer = api.delete(f"/tokens/{api.segment(token)}")
    if as_json:
        print_json(answer)
    else:
        console.print(one_line(f"the token of {answer['name']} is revoked"), markup=False, soft_wrap=True)


def audit(
    room: RoomName = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what this caller did.")] = None,
    action: Annotated[str | None, typer.Option("--action", metavar="ACTION", help="Only this action.")] = None,
    since: Since = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """What callers did: who, when, what, and to which room or thing."""
    rows = connect(directory).items("/audit", last, room=room, actor=actor, action=action, since=since_of(since))
    show(rows, _AUDIT, as_json=as_json, empty="nobody did anything yet")
