"""The life of a delivery's item as steps in the order of time: from HTTP to the sent message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from room_admin.domain.words import Tone, tone

Row = Mapping[str, Any]
_UNSAID: Final[dict[str, Any]] = {
    "name": "a definition",
    "verdict": "no answer",
    "warning": None,
    "answer": None,
    "input_tokens": 0,
    "output_tokens": 0,
    "remembered": False,
    "ms": 0,
}
"""What an entry of the ledger says by saying nothing."""
Kind = Literal["received", "decoded", "asked", "decided", "event", "cycle", "message"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``at`` is None where only its place in the order is known; ``row`` is what it is told from."""

    kind: Kind
    tone: Tone
    at: datetime | None
    row: Row = field(repr=False)


def life(delivery: Row, events: Iterable[Row], cycles: Iterable[Row], messages: Iterable[Row]) -> Sequence[Step]:
    """The steps of one item. ``verdicts`` is missing from ``delivery`` where the caller may not see it."""
    steps = [Step("received", "quiet", delivery["received_at"], delivery)]
    if delivery["changes"] or delivery["id_conflict"]:
        steps.append(Step("decoded", "warn", None, delivery))
    steps += [
        Step("asked", _verdict_tone(verdict), None, _UNSAID | verdict)
        for verdict in delivery.get("verdicts", ())
        if isinstance(verdict, dict)
    ]
    steps.append(Step("decided", tone(delivery["outcome"]), delivery["decided_at"], delivery))
    event = next((row for row in events if row["item"] == delivery["item"]), None)
    if event is None:
        return steps
    steps.append(Step("event", tone(event["status"]), event["matched_at"], event))
    cycle = next((row for row in cycles if row["id"] == event["cycle_id"]), None)
    if cycle is not None:
        steps.append(Step("cycle", tone(cycle["status"]), cycle["started_at"], cycle))
        steps += [
            Step("message", tone(row["status"]), row["created_at"], row)
            for row in sorted(messages, key=lambda row: (row["created_at"], row["seq"]))
            if row["cycle_id"] == cycle["id"]
        ]
    return steps


def _verdict_tone(verdict: Row) -> Tone:
    if verdict.get("warning"):
        return "warn"
    return "good" if verdict.get("verdict") == "yes" else "quiet"
