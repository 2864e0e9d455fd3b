"""Names for the shell to complete, asked of the API: quickly, silently, and nothing where it does not answer."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Final

import typer

from room_cli.connection import Api, connect
from room_cli.lookup import ALL, in_rooms

_SECONDS: Final = 2.0
"""Longest wait for one answer: a person has pressed Tab."""


def room_slugs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Slugs of rooms, with their names."""
    api = _api(context)
    rows = _ask(lambda: api.items("/instances", ALL)) if api is not None else []
    return _matching(incomplete, [(str(row["slug"]), str(row["name"])) for row in rows])


def source_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of sources, of the room that is on the command line or of all."""
    return _matching(incomplete, [(str(row["name"]), str(row["type"])) for row in _rows(context, "sources")])


def definition_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of definitions, of the source that is on the command line or of all."""
    source = context.params.get("source")
    rows = [row for row in _rows(context, "definitions") if source in (None, row["source"])]
    return _matching(incomplete, [(str(row["name"]), str(row["match"])) for row in rows])


def targets(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of whatever kind of thing stands before on the command line."""
    kind = getattr(context.params.get("kind"), "value", context.params.get("kind"))
    complete = {"room": room_slugs, "source": source_names, "definition": definition_names}.get(str(kind))
    return [] if complete is None else complete(context, incomplete)


def _rows(context: typer.Context, what: str) -> list[dict[str, Any]]:
    api = _api(context)
    room = context.params.get("room")
    return [] if api is None else _ask(lambda: in_rooms(api, room, what))


def _api(context: typer.Context) -> Api | None:
    found = _ask(lambda: [connect(Path(context.params.get("directory") or "."), seconds=_SECONDS)])
    return found[0] if found else None


def _ask(question: Any) -> Any:
    """The answer, or nothing: messages about what went wrong would land in the middle of what is typed."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        return question()
    return []


def _matching(incomplete: str, words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [word for word in dict.fromkeys(words) if word[0].startswith(incomplete)]
