"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(highlight=False, emoji=False)

_GAP = 2
_GLANCE = 20
# JSON escapes what is below the space by itself. These move a terminal's cursor, turn text around, or can't be written.
_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_STYLES = {
    "matched": "green",
    "completed": "green",
    "succeeded": "green",
    "sent": "green",
    "read": "green",
    "no_match": "dim",
    "duplicate": "dim",
    "failed": "red",
    "dead": "red",
    "bad_signature": "red",
    "abandoned": "red",
    "unknown": "red",
    "pending": "yellow",
    "processing": "cyan",
    "running": "cyan",
    "sending": "cyan",
    "unread": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, the value's key, and how it is written.

    The one ``wide`` column is cut to what space is left. Where that would be less than a glance's worth, columns that
    may be left out are, the one with the highest ``spare`` first; JSON has all.
    """

    title: str
    key: str
    write: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    wide: bool = False
    right: bool = False
    spare: int = 0


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table that keeps each row on one line."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        console.print(empty, markup=False, soft_wrap=True)
        return
    cells = {column.key: [one_line(column.write(row.get(column.key))) for row in rows] for column in columns}
    longest = {column.key: max(map(cell_len, (column.title, *cells[column.key]))) for column in columns}
    kept = _fitting(columns, longest, console.width)
    taken = sum(_GAP + (0 if column.wide else longest[column.key]) for column in kept) - _GAP
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in kept:
        table.add_column(
            column.title,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.right else "left",
            max_width=max(1, console.width - taken) if column.wide else None,
        )
    for line in zip(*(cells[column.key] for column in kept), strict=True):
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in line))
    console.print(table)


def _fitting(columns: Sequence[Column], longest: Mapping[str, int], width: int) -> list[Column]:
    def needed(column: Column) -> int:
        return _GAP + (min(longest[column.key], _GLANCE) if column.wide else longest[column.key])

    kept = list(columns)
    while sum(map(needed, kept)) - _GAP > width:
        spare = max(kept, key=lambda column: column.spare)
        if not spare.spare:
            break
        kept.remove(spare)
    return kept


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a timeline: when (a time of the API), what, and what of it; long texts go on below."""

    at: str | None
    what: str
    text: str


def print_timeline(lines: Sequence[Line]) -> None:
    """Print a timeline that fits the terminal."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        what = one_line(line.what)
        table.add_row(clock(line.at), Text(what, style=_STYLES.get(what, "bold")), Text(printable(line.text)))
    console.print(table)


def print_fields(value: Mapping[str, Any]) -> None:
    """Print what is known of one thing, a line for each; times as in lists, nothing for what is not there."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, one in value.items():
        if one is None:
            continue
        text = clock(one) if name.endswith("_at") else one if isinstance(one, str) else json.dumps(one)
        table.add_row(Text(one_line(name.replace("_", " "))), Text(printable(text)))
    console.print(table)


def print_json(value: object) -> None:
    """Print a value as JSON, untouched by the terminal's width."""
    sys.stdout.write(json_text(value))


def json_text(value: object) -> str:
    """A value as lines of JSON, what moves a terminal's cursor escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def clock(value: object) -> str:
    """A time of the API as local time of day, with the date when it is not today."""
    if not isinstance(value, str):
        return ""
    local = datetime.fromisoformat(value).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%m-%d %H:%M")


def one_line(text: str) -> str:
    """Text without line breaks and control characters, so that nothing from outside moves the cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def printable(text: str) -> str:
    """Text with its line breaks, but without other control characters."""
    return "\n".join(one_line(line) for line in text.splitlines())


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
