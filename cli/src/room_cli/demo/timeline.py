"""The timeline: one line for everything that happens, as it happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from room_cli.output import counted, one_line

_STYLES: Final = {
    "HTTP": "blue",
    "outcome": "white",
    "backlog": "magenta",
    "tick": "dim",
    "cycle": "cyan",
    "tool": "yellow",
    "message": "bold green",
    "reply": "bold blue",
}
_OUTCOME_STYLES: Final = {"matched": "green", "bad_signature": "red", "too_large": "red", "undecodable": "red"}

_INDENT: Final = f"{'':11}│ "


class Timeline:
    """Prints lines with the seconds since it was made. May be used from several threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def add(self, what: str, text: str, detail: str = "", style: str = "") -> None:
        """One line, cut at the terminal's edge."""
        line = Text(f"{time.monotonic() - self._started:6.1f} s  ", style="dim")
        line.append(f"{what:<8} ", style=_STYLES.get(what, ""))
        line.append(one_line(text), style=style)
        if detail:
            line.append(f"  {one_line(detail)}", style="dim")
        with self._lock:
            self._console.print(line, no_wrap=True, overflow="ellipsis")

    def quote(self, text: str) -> None:
        """Text of a message, indented below its line."""
        with self._lock:
            for line in text.strip().splitlines():
                width = max(20, self._console.width - len(_INDENT))
                for part in Text(one_line(line)).wrap(self._console, width) or [Text()]:
                    self._console.print(Text(_INDENT + part.plain.rstrip(), style="green"), soft_wrap=True)

    def outcome(self, row: Mapping[str, Any]) -> None:
        """What the matcher decided about one item."""
        text = Text(f"{row['outcome']:<14}", style=_OUTCOME_STYLES.get(row["outcome"], "dim"))
        why = row["definition"] or row["reason"] or ""
        cost = f"{counted(row['llm_calls'], 'call')}, {row['tokens']} tokens" if row["llm_calls"] else "no model call"
        self.add("outcome", f"{text.plain}{row['source'] or '-':<15} {why}", cost, style=str(text.style))
