"""Finding what a person means by a name or by the end of an id."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from room_cli.connection import Api
from room_cli.failures import WRONG_INPUT, fail

ID_END: Final = 12
"""So much of an id is shown in lists: its random end."""

ALL: Final = 100_000
"""Rows of a list that is wanted whole."""

_LEAST_END: Final = 4
_ENDINGS: Final = 500


def end_of_id(value: object) -> str:
    """An id as lists show it."""
    return str(value)[-ID_END:]


def find_id(api: Api, word: str, *, path: str, what: str) -> str:
    """A row's whole id from itself, from its end, or from ``last``. Ends the command unless there is exactly one."""
    if word == "last":
        rows = api.items(path, 1)
        if not rows:
            fail(f"there is no {what} yet")
        return str(rows[0]["id"])
    with suppress(ValueError):
        return str(UUID(word))
    found = set()
    if len(word) >= _LEAST_END:
        found = {str(row["id"]) for row in api.items(path, _ENDINGS) if row["id"].endswith(word.lower())}
    if len(found) != 1:
        said = (
            f"several have an id that ends in {word!r}" if found else f"none of the latest {_ENDINGS} ends in {word!r}"
        )
        fail(f"{what}: {said}; `room {path.strip('/')} --json` shows whole ids", WRONG_INPUT)
    return found.pop()


def find_source(api: Api, name: str, room: str | None) -> dict[str, Any]:
    """The source with that name. Ends the command unless there is exactly one."""
    return _only(
        [row for row in in_rooms(api, room, "sources") if row["name"] == name],
        f"source {name!r}",
        "room sources",
    )


def find_definition(api: Api, name: str, room: str | None) -> dict[str, Any]:
    """The definition with that name, or that of a source written ``source / name``."""
    rows = in_rooms(api, room, "definitions")
    return _only(
        [row for row in rows if name in (row["name"], f"{row['source']} / {row['name']}")],
        f"definition {name!r}",
        "room definitions",
    )


def in_rooms(api: Api, room: str | None, what: str) -> list[dict[str, Any]]:
    """The sources or definitions of one room, or of all."""
    slugs = [room] if room is not None else [str(item["slug"]) for item in api.items("/instances", ALL)]
    return [{"room": slug} | row for slug in slugs for row in api.items(f"/instances/{slug}/{what}", ALL)]


def _only(found: list[dict[str, Any]], what: str, command: str) -> dict[str, Any]:
    if not found:
        fail(f"there is no {what}; `{command}` lists them", WRONG_INPUT)
    if len(found) > 1:
        where = sorted({str(row["room"]) for row in found})
        if len(where) > 1:
            fail(f"several rooms have a {what} ({', '.join(where)}); say which with --room", WRONG_INPUT)
        fail(f"several sources have a {what}; write it as `source / name`", WRONG_INPUT)
    return found[0]
