"""What pages are made of: transcripts, lives, a day's volume, what wants a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain import attention, volume
from room_admin.domain.life import life
from room_admin.domain.transcript import turns
from room_admin.domain.words import MEANINGS, tone
from room_common.domain.deliveries import OUTCOMES

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _message(seq: int, role: str, content: Any) -> dict[str, Any]:
    return {"seq": seq, "role": role, "content": content, "created_at": NOW}


def test_calls_and_their_answers_belong_together() -> None:
    call = {"id": "1", "function": {"name": "mark", "arguments": '{"ids":[1]}'}}
    made = turns(
        [
            _message(1, "assistant", {"content": None, "tool_calls": [call]}),
            _message(2, "tool", {"tool_call_id": "1", "content": '{"completed":1}'}),
            _message(3, "tool", {"tool_call_id": "other", "content": "not JSON"}),
        ]
    )
    assert made[0].calls[0].name == "mark"
    assert made[0].calls[0].arguments == '{\n  "ids": [\n    1\n  ]\n}'
    assert (made[1].answers, made[1].text) == ("mark", '{\n  "completed": 1\n}')
    assert (made[2].answers, made[2].text) == ("a tool", "not JSON")


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), JSON)))
def test_every_transcript_can_be_shown(messages: list[tuple[str, Any]]) -> None:
    made = turns([_message(seq, role, content) for seq, (role, content) in enumerate(messages)])
    assert [turn.seq for turn in made] == list(range(len(messages)))


@given(JSON, JSON)
def test_every_call_can_be_shown(calls: Any, content: Any) -> None:
    turns([_message(1, "assistant", {"tool_calls": calls, "content": content})])
    turns([_message(1, "assistant", {"tool_calls": [{"function": calls, "id": content}]})])


DELIVERY: dict[str, Any] = {
    "item": 0,
    "received_at": NOW,
    "decided_at": NOW + timedelta(seconds=1),
    "outcome": "matched",
    "changes": [],
    "id_conflict": False,
}
CYCLE = {"id": UUID(int=7), "status": "succeeded", "started_at": NOW}
EVENT = {"item": 0, "status": "completed", "matched_at": NOW, "cycle_id": UUID(int=7)}
MESSAGE = {"cycle_id": UUID(int=7), "status": "failed", "created_at": NOW, "seq": 1}


def test_a_life_goes_from_http_to_the_message() -> None:
    verdicts = [
        {"name": "a", "verdict": "no"},
        {"name": "b", "verdict": "yes"},
        {"name": "c", "warning": "unclear_answer"},
    ]
    steps = life(DELIVERY | {"verdicts": verdicts, "changes": ["nul"]}, [EVENT], [CYCLE], [MESSAGE])
    assert [(step.kind, step.tone) for step in steps] == [
        ("received", "quiet"),
        ("decoded", "warn"),
        ("asked", "quiet"),
        ("asked", "good"),
        ("asked", "warn"),
        ("decided", "good"),
        ("event", "good"),
        ("cycle", "good"),
        ("message", "bad"),
    ]


def test_a_life_without_verdicts_or_events() -> None:
    assert [step.kind for step in life(DELIVERY, [], [CYCLE], [MESSAGE])] == ["received", "decided"]
    other = EVENT | {"item": 1}
    assert [step.kind for step in life(DELIVERY | {"verdicts": ["text"]}, [other], [], [])] == ["received", "decided"]


def test_every_outcome_has_a_meaning() -> None:
    assert set(MEANINGS) == set(OUTCOMES)
    assert tone("nothing like it") == "quiet"


@given(
    st.lists(
        st.fixed_dictionaries(
            {"slot": st.integers(-1, 30), "outcome": st.sampled_from(OUTCOMES), "items": st.integers(1, 10**6)}
        )
    )
)
def test_a_day_of_volume(rows: list[dict[str, Any]]) -> None:
    day = volume.hours(rows)
    assert [hour.ago for hour in day.hours] == list(range(23, -1, -1))
    assert day.total == sum(row["items"] for row in rows) == sum(hour.items for hour in day.hours)
    assert all(0 <= hour.matched_height <= hour.height <= 100 for hour in day.hours)
    assert all(hour.height >= 2 for hour in day.hours if hour.items)


ROOM: dict[str, Any] = {
    "slug": "desk",
    "status": "active",
    "enabled": True,
    "running": False,
    "parked_reason": None,
    "budget": 100,
    "used": 1,
    "fails": 0,
    "failed": 0,
}
PROCESS: dict[str, Any] = {"service": "matcher", "process": "m-1", "age_seconds": 1.0, "held_reason": None}


@pytest.mark.parametrize(
    ("change", "state", "noticed"),
    [
        ({}, "ready", []),
        ({"running": True}, "running", []),
        ({"enabled": False}, "off", []),
        ({"status": "paused", "parked_reason": "x"}, "paused", []),
        ({"parked_reason": "refused"}, "parked", ["bad"]),
        ({"used": 100}, "out of budget", ["warn"]),
        ({"budget": None, "used": 10**9}, "ready", []),
        ({"fails": 2}, "ready", ["warn"]),
        ({"failed": 3, "fails": 1}, "ready", ["bad", "warn"]),
    ],
)
def test_rooms_that_want_a_person(change: dict[str, Any], state: str, noticed: list[str]) -> None:
    room = ROOM | change
    assert attention.state_of_room(room) == state
    assert [notice.tone for notice in attention.notices([room], [PROCESS], 0)] == noticed


def test_processes_and_messages_that_want_a_person() -> None:
    held, late = PROCESS | {"held_reason": "provider"}, PROCESS | {"age_seconds": 21.0, "held_reason": "provider"}
    found = attention.notices([], [late, held, PROCESS], 1)
    assert [notice.tone for notice in found] == ["bad", "bad", "warn"]
    assert [notice.title for notice in found][1] == "1 message not sent today"
