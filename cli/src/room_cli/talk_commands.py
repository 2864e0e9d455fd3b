"""``room chat`` and ``room reply``: being the person that an agent on the local channel talks to."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import httpx
import typer
from rich.text import Text

from room_cli.connection import Api, connect
from room_cli.failures import FAILED, UNREACHABLE, WRONG_INPUT, fail
from room_cli.options import AsJson, Directory, RoomArgument
from room_cli.output import clock, console, one_line, print_json, printable

_POLL_SECONDS = 0.5
_SHOWN_AT_FIRST = 10


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(chat)
    app.command()(reply)


class Mailbox:
    """One room's local channel: answers go to ingest, as a provider would post them."""

    def __init__(self, api: Api, room: str) -> None:
        self._api = api
        self._room = room
        found = api.get(f"/instances/{room}")
        if found["channel"] != "local":
            fail(f"{room} does not talk on the local channel (its channel: {found['channel'] or 'none'})", WRONG_INPUT)
        self.target: str = found["target"]
        channel = next(row for row in api.get(f"/instances/{room}/channels")["items"] if row["type"] == "local")
        self._url: str = api.post(f"/channels/{channel['id']}/reveal")["url"]

    def answer(self, text: str) -> str:
        """Post one answer and give its id. Ends the command unless it was taken."""
        reply_id = str(uuid4())
        body = {"id": reply_id, "sender": self.target, "text": text}
        try:
            answer = httpx.post(self._url, json=body, timeout=15.0, trust_env=False)
        except httpx.HTTPError as error:
            fail(f"ingest does not answer ({type(error).__name__})", UNREACHABLE)
        if answer.status_code != httpx.codes.OK:
            fail(f"ingest answered {answer.status_code}; the reply was not taken", FAILED)
        return reply_id

    def sent(self) -> list[dict[str, Any]]:
        """The latest messages that reached the person, oldest first."""
        rows = self._api.items("/messages", 50, room=self._room, status="sent")
        return list(reversed(rows))


def reply(
    room: RoomArgument,
    text: Annotated[str, typer.Argument(help="What to answer.")],
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Answer once."""
    if not text.strip():
        fail("an answer needs some text", WRONG_INPUT)
    reply_id = Mailbox(connect(directory), room).answer(text)
    if as_json:
        print_json({"room": room, "id": reply_id})
    else:
        console.print(f"sent to {room}; `room inbox` shows its fate", markup=False)


def chat(room: RoomArgument, directory: Directory = Path()) -> None:
    """Show messages as they arrive and send what you type. Ctrl-D or Ctrl-C ends it."""
    mailbox = Mailbox(connect(directory), room)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(mailbox, done), daemon=True)
    console.print(one_line(f"You answer {room} as {mailbox.target!r}: type, press Enter; Ctrl-D ends."), markup=False)
    watcher.start()
    try:
        for line in sys.stdin:
            if line.strip():
                mailbox.answer(line.strip())
    except KeyboardInterrupt:
        pass
    finally:
        done.set()
        watcher.join(5)


def _watch(mailbox: Mailbox, done: threading.Event) -> None:
    known: set[str] | None = None
    while True:
        try:
            rows = mailbox.sent()
        except typer.Exit:  # the message is out already; the next answer typed ends the command
            return
        fresh = rows[-_SHOWN_AT_FIRST:] if known is None else [row for row in rows if row["id"] not in known]
        first, known = known is None, (known or set()) | {row["id"] for row in rows}
        for row in fresh:
            console.print(Text(one_line(f"{clock(row['sent_at'])} {row['room']}"), style="bold cyan"))
            console.print(printable(row["text"]), markup=False, soft_wrap=True)
        if first:
            said = "--- until now ---" if fresh else "--- nothing was said yet ---"
            console.print(Text(said, style="dim"))
        if done.wait(_POLL_SECONDS):
            return
