"""What was expected, what happened, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from room_local.status import StackStatus


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so."""

    what: str
    expected: str
    seen: str

    @property
    def holds(self) -> bool:
        return self.expected == self.seen


def show_checks(console: Console, checks: Sequence[Check]) -> bool:
    """Print all checks. Whether all of them hold."""
    table = Table(title="What should have happened, and did it?", title_justify="left", box=None, pad_edge=False)
    for title in ("", "what", "expected", "seen"):
        table.add_column(title, no_wrap=title != "what")
    for check in checks:
        mark = Text("ok", style="green") if check.holds else Text("WRONG", style="bold red")
        table.add_row(mark, check.what, check.expected, check.seen)
    console.print(table)
    return all(check.holds for check in checks)


def show_costs(console: Console, stats: Mapping[str, Any], cycles: Sequence[Mapping[str, Any]]) -> None:
    """Print what the models were asked."""
    calls = sum(outcome["llm_calls"] for outcome in stats["outcomes"].values())
    tokens = stats["tokens"]
    steps = sum(cycle["steps"] for cycle in cycles)
    console.print(
        f"Model calls: {calls} to classify ({tokens.get('fast', 0)} tokens), "
        f"{steps} in {len(cycles)} cycles ({tokens.get('standard', 0)} tokens)"
    )


def show_times(console: Console, backlog: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]) -> None:
    """Print how long it took from HTTP to the backlog, and from there to the person."""
    pending = [_seconds(row["received_at"], row["matched_at"]) for row in backlog]
    first_sent: dict[str, str] = {}
    for row in messages:
        if row["sent_at"] is not None and row["cycle_id"] is not None:
            first_sent[row["cycle_id"]] = min(row["sent_at"], first_sent.get(row["cycle_id"], row["sent_at"]))
    told = [
        _seconds(row["matched_at"], first_sent[row["cycle_id"]]) for row in backlog if row["cycle_id"] in first_sent
    ]
    for name, values in (("HTTP to pending", pending), ("pending to message", told)):
        if values:
            console.print(f"{name}: median {median(values):.2f} s, longest {max(values):.2f} s ({len(values)} events)")


def show_memory(console: Console, status: StackStatus) -> None:
    """Print the resident memory of every process."""
    parts = [
        f"{process.name} {process.memory_bytes >> 20}"
        for process in status.processes
        if process.memory_bytes is not None
    ]
    console.print(f"Memory in MiB: {', '.join(parts)}", markup=False)


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
