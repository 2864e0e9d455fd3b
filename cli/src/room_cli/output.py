"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(highlight=False)

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
    """One column: its title, the value's key, and how it is written. ``wide`` columns take what space is left."""

    title: str
    key: str
    write: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    wide: bool = False
    right: bool = False


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table that keeps each row on one line."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        console.print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.right else "left",
            ratio=1 if column.wide else None,
        )
    table.expand = any(column.wide for column in columns)
    for row in rows:
        cells = [one_line(column.write(row.get(column.key))) for column in columns]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console.print(table)


def print_json(value: object) -> None:
    """Print a value as JSON, untouched by the terminal's width."""
    console.print(json.dumps(value, indent=2, ensure_ascii=False), markup=False, soft_wrap=True)


def clock(value: object) -> str:
    """A time of the API as local time of day, with the date when it is not today."""
    if not isinstance(value, str):
        return ""
    local = datetime.fromisoformat(value).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M")


def one_line(text: str) -> str:
    """Text without line breaks and control characters, so that nothing from outside moves the cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def printable(text: str) -> str:
    """Text with its line breaks, but without other control characters."""
    return "\n".join(one_line(line) for line in text.splitlines())
