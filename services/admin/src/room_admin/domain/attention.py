"""What an operator should look at first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Row = Mapping[str, Any]

LATE_SECONDS: Final = 20.0
"""A process reports every 5 seconds; one that did not for this long is late."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that is not as it should be, where to look, and what helps."""

    tone: Literal["warn", "bad"]
    title: str
    text: str
    link: str


def state_of_room(room: Row) -> str:
    """One word for a room."""
    if room["status"] != "active":
        return "paused"
    if room["parked_reason"]:
        return "parked"
    if not room["enabled"]:
        return "off"
    if room["running"]:
        return "running"
    if room["budget"] is not None and room["used"] >= room["budget"]:
        return "out of budget"
    return "ready"


def late(process: Row) -> bool:
    """Whether a process has not reported for too long."""
    return bool(process["age_seconds"] > LATE_SECONDS)


def notices(rooms: Iterable[Row], processes: Iterable[Row], unsent: int) -> Sequence[Notice]:
    """Everything that wants a person, worst first."""
    found = [*_of_processes(processes), *_of_rooms(rooms)]
    if unsent:
        text = (
            "Their provider refused them, or nobody knows whether they arrived. Each says why, and can be sent again."
        )
        found.append(
            Notice("bad", f"{_count(unsent, 'message')} not sent today", text, "/panel/messages?status=failed")
        )
    return sorted(found, key=lambda notice: notice.tone != "bad")


def _of_processes(processes: Iterable[Row]) -> Iterable[Notice]:
    for process in processes:
        name = f"{process['service']} {process['process']}"
        if late(process):
            text = "It is stopped, cut off from the database, or was killed. Its log says which."
            yield Notice("warn", f"{name} has not reported lately", text, "/panel/services")
        elif process["held_reason"]:
            text = f"{process['held_reason']}. It goes on by itself when that is over; nothing is lost meanwhile."
            yield Notice("bad", f"{name} is held", text, "/panel/services")


def _of_rooms(rooms: Iterable[Row]) -> Iterable[Notice]:
    for room in rooms:
        slug = room["slug"]
        state = state_of_room(room)
        if state == "parked":
            text = f"{room['parked_reason']}. Switch the room on again when the cause is gone."
            yield Notice("bad", f"{slug} is parked", text, f"/panel/rooms/{slug}")
        elif state == "out of budget":
            text = "It has used its tokens of today and sleeps until midnight in its timezone."
            yield Notice("warn", f"{slug} is out of budget", text, f"/panel/rooms/{slug}")
        elif room["fails"]:
            text = "Its latest cycles failed. After five in a row it is parked."
            yield Notice("warn", f"{slug}: {_count(room['fails'], 'cycle')} failed in a row", text, _cycles(slug))
        if room["failed"]:
            text = "Each was tried until it was given up. Its notes say why."
            link = f"/panel/backlog?room={slug}&status=failed"
            yield Notice("bad", f"{slug}: {_count(room['failed'], 'event')} failed", text, link)


def _cycles(slug: str) -> str:
    return f"/panel/cycles?room={slug}&status=failed"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
