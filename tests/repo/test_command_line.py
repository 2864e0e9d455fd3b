"""The command line does everything the API does, and says how every command ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from room_cli.__main__ import app

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = {
    "GET /audit": "audit",
    "GET /tokens": "tokens",
    "POST /tokens": "tokens make",
    "DELETE /tokens/{token_id}": "tokens revoke",
    "GET /activity": "activity",
    "POST /apply": "apply",
    "GET /backlog": "backlog",
    "GET /backlog/{event_id}": "backlog show",
    "GET /backlog/{event_id}/payload": "backlog payload",
    "POST /backlog/{event_id}/complete": "backlog complete",
    "POST /backlog/{event_id}/retry": "backlog retry",
    "POST /channels/{channel_id}/reveal": "channels",
    "GET /cycles": "cycles",
    "GET /cycles/{cycle_id}": "cycles show",
    "GET /cycles/{cycle_id}/messages": "cycles show",
    "GET /cycles/{cycle_id}/feed": "watch",
    "POST /definitions/test": "definitions test",
    "PATCH /definitions/{definition_id}": "enable",
    "DELETE /definitions/{definition_id}": "delete",
    "GET /deliveries": "deliveries",
    "GET /deliveries/{delivery_id}/life": "deliveries show",
    "GET /deliveries/{delivery_id}/payload": "deliveries payload",
    "POST /deliveries/{delivery_id}/replay": "deliveries replay",
    "GET /feed": "watch",
    "GET /inbox": "inbox",
    "POST /inbox/{reply_id}/retry": "inbox retry",
    "GET /instances": "rooms",
    "GET /instances/{slug}": "rooms show",
    "PATCH /instances/{slug}": "disable",
    "DELETE /instances/{slug}": "delete",
    "GET /instances/{slug}/channels": "channels",
    "GET /instances/{slug}/definitions": "definitions",
    "GET /instances/{slug}/export": "export",
    "POST /instances/{slug}/resume": "resume",
    "GET /instances/{slug}/sources": "sources",
    "POST /instances/{slug}/tick": "tick",
    "GET /instances/{slug}/tools": "tools list",
    "POST /instances/{slug}/tools/{name}/confirm": "tools confirm",
    "GET /messages": "messages",
    "POST /messages/{message_id}/resend": "messages resend",
    "GET /overflow": "overflow",
    "GET /services": "services",
    "PATCH /sources/{source_id}": "enable",
    "DELETE /sources/{source_id}": "delete",
    "PUT /sources/{source_id}/definitions/order": "definitions order",
    "POST /sources/{source_id}/reveal": "sources",
    "POST /sources/{source_id}/rotate-token": "sources rotate",
    "GET /stats": "stats",
}
_BY_FILE = "`room apply` does it from the room's file, `room api` alone"
_BY_ROW = "lists show the row, `--json` with all there is; `room api` reads it alone"
WITHOUT_A_COMMAND = {
    "GET /definitions/{definition_id}": _BY_ROW,
    "GET /deliveries/{delivery_id}": "`room deliveries show` prints the life of a delivery, which begins with it",
    "GET /inbox/{reply_id}": _BY_ROW,
    "POST /instances": _BY_FILE,
    "POST /instances/{slug}/answer": "`room reply` and `room chat` post to the channel itself, as its provider would",
    "PUT /instances/{slug}/channel": _BY_FILE,
    "DELETE /instances/{slug}/channel": _BY_FILE,
    "POST /instances/{slug}/channel/test": "`room api` sends one",
    "GET /instances/{slug}/prompts": "`room api` reads them; a room file has no place for them",
    "PUT /instances/{slug}/prompts": "`room api` changes them; a room file has no place for them",
    "POST /instances/{slug}/sources": _BY_FILE,
    "PUT /instances/{slug}/tools/{name}": _BY_FILE,
    "DELETE /instances/{slug}/tools/{name}": _BY_FILE,
    "GET /me": "`room api` says whose token it is; nothing else needs to know",
    "GET /messages/{message_id}": _BY_ROW,
    "GET /sources/{source_id}": _BY_ROW,
    "POST /sources/{source_id}/definitions": _BY_FILE,
}
WITHOUT_JSON = {
    "up": "prints what happens while it runs; `room status --json` says what runs",
    "logs": "each line of a log is JSON already",
    "chat": "is a conversation; `room messages --json` and `room reply --json` are its two halves",
    "demo": "tells a story; its exit code says whether it went as it should",
}


def _commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        here = (*path, name)
        if isinstance(command, TyperGroup):
            yield from _commands(command, here)
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield " ".join(here), command


def _all() -> dict[str, Any]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return dict(_commands(root))


def _routes() -> set[str]:
    paths = json.loads((ROOT / "contracts/openapi.json").read_text())["paths"]
    return {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, methods in paths.items() for method in methods}


def test_every_route_has_a_command_or_a_reason() -> None:
    assert _routes() == COMMANDS.keys() | WITHOUT_A_COMMAND.keys()
    assert not COMMANDS.keys() & WITHOUT_A_COMMAND.keys()
    assert all(WITHOUT_A_COMMAND.values())


@pytest.mark.parametrize("command", sorted(set(COMMANDS.values())))
def test_the_command_of_a_route_is_there(command: str) -> None:
    assert command in _all()


def test_every_command_prints_json() -> None:
    without = {
        name for name, command in _all().items() if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_JSON.keys()
    assert all(WITHOUT_JSON.values())


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in _all().items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name}"
