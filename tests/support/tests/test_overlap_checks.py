"""The checks of the overlap checker find what they look for, and nothing in a good history."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from room_testing.overlap.checks import violations
from room_testing.overlap.history import Delivered, Fault, History, Request, Write


def good() -> History:
    """Two cycles of one room; the second one lost its worker once, and outbound was killed while it sent."""
    history = History(seed=1)
    history.faults = [Fault("kill", "runner-1", 20.0, 21.0), Fault("kill", "outbound-1", 41.0, 42.0)]
    history.requests = [
        *(Request(float(at), "a", step) for at, step in ((1, 0), (2, 1), (3, 2))),
        *(Request(float(at), "b", step) for at, step in ((18, 0), (19, 1), (25, 1), (26, 2))),
    ]
    history.writes = [
        Write("r", "cycle_messages", "a", "runner-1", 1),
        Write("r", "room_cycles", "a", "runner-1", 1),
        Write("r", "cycle_messages", "b", "runner-1", 3),
        Write("r", "cycle_messages", "b", "runner-2", 5),
    ]
    history.events = [{"id": "1", "status": "completed", "attempts": 0}, {"id": "2", "status": "failed", "attempts": 5}]
    history.replies = [{"text": "reply-x", "status": "read", "attempts": 0}]
    history.cycles = [
        {"id": "1", "status": "succeeded", "steps": 3, "resumes": 0, "opening": "a"},
        {"id": "2", "status": "succeeded", "steps": 3, "resumes": 1, "opening": "b"},
    ]
    history.messages = [
        {"id": "m1", "room": "r", "cycle": "a", "seq": 1, "text": "event 1", "status": "sent"},
        {"id": "m2", "room": "r", "cycle": "b", "seq": 2, "text": "re reply-x", "status": "sent"},
    ]
    history.delivered = [Delivered(30.0, "m1"), Delivered(40.0, "m2"), Delivered(43.0, "m2")]
    return history


def test_a_good_history_has_no_violation() -> None:
    assert violations(good()) == []


def _late(history: History) -> None:
    history.writes.append(Write("r", "cycle_messages", "b", "runner-1", 3))


def _two_writers(history: History) -> None:
    history.writes.append(Write("r", "cycle_messages", "b", "runner-1", 5))


def _open_event(history: History) -> None:
    history.events.append({"id": "3", "status": "processing", "attempts": 0})


def _lost_reply(history: History) -> None:
    history.replies.append({"text": "reply-y", "status": "taken", "attempts": 0})


def _unanswered(history: History) -> None:
    history.replies.append({"text": "reply-y", "status": "read", "attempts": 0})


def _paid_twice(history: History) -> None:
    history.requests.append(Request(4.0, "a", 1))


def _paid_without_fault(history: History) -> None:
    history.faults = []


def _never_delivered(history: History) -> None:
    history.delivered = history.delivered[1:]


def _delivered_too_often(history: History) -> None:
    history.delivered.append(Delivered(44.0, "m2"))


def _out_of_order(history: History) -> None:
    history.delivered[0] = Delivered(45.0, "m1")


def _stranger(history: History) -> None:
    history.delivered.append(Delivered(50.0, "m9"))


def _said_twice(history: History) -> None:
    history.messages.append({**history.messages[1], "id": "m3", "seq": 3})
    history.delivered.append(Delivered(60.0, "m3"))


def _untold(history: History) -> None:
    history.events.append({"id": "3", "status": "completed", "attempts": 0})


def _runs_on(history: History) -> None:
    history.cycles = [{"id": "c", "status": "running", "steps": 0, "resumes": 0, "opening": "c"}]


def _overpaid(history: History) -> None:
    history.cycles = [{**cycle, "resumes": 0} for cycle in history.cycles]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (_late, "under epoch 3 after epoch 5"),
        (_two_writers, "both wrote"),
        (_open_event, "is processing"),
        (_lost_reply, "is taken"),
        (_unanswered, "not answered"),
        (_paid_twice, "after it had finished"),
        (_paid_without_fault, "without a fault"),
        (_never_delivered, "never delivered"),
        (_delivered_too_often, "3 times"),
        (_out_of_order, "before message"),
        (_stranger, "in no outbox"),
        (_said_twice, "2 times"),
        (_untold, "nobody was told"),
        (_runs_on, "still runs"),
        (_overpaid, "4 calls where 3"),
    ],
)
def test_what_is_wrong_is_found(spoil: Callable[[History], None], word: str) -> None:
    history = copy.deepcopy(good())
    spoil(history)
    found = violations(history)
    assert any(word in line for line in found), found
