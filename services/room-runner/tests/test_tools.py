"""Tool calls are a model's text until they are checked."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.llm.port import ToolCall
from room_runner.domain.tools import (
    MAX_MESSAGE,
    TOOLS,
    BadCall,
    DeferEvent,
    MarkEventsCompleted,
    SendMessageToHuman,
    descriptions,
    event_ids,
    parse,
)

EVENT = "0190a000-0000-7000-8000-000000000001"


def test_good_calls() -> None:
    marked = parse(ToolCall("1", "mark_events_completed", json.dumps({"event_ids": [EVENT], "more": 1})))
    assert marked == MarkEventsCompleted(event_ids=[EVENT], notes=None)
    deferred = parse(ToolCall("2", "defer_event", json.dumps({"event_id": EVENT, "minutes": 60, "reason": " later "})))
    assert deferred == DeferEvent(event_id=EVENT, minutes=60, reason="later")
    sent = parse(ToolCall("3", "send_message_to_human", '{"message": "a\\u0000b"}'))
    assert sent == SendMessageToHuman(message="a�b")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("drop_table", "{}", "There is no such tool"),
        ("defer_event", "{", "not valid JSON"),
        ("defer_event", "[]", "can't be used"),
        ("defer_event", "", "event_id: Field required"),
        ("defer_event", json.dumps({"event_id": EVENT, "minutes": 0, "reason": "x"}), "minutes"),
        ("defer_event", json.dumps({"event_id": EVENT, "minutes": 10_081, "reason": "x"}), "minutes"),
        ("mark_events_completed", json.dumps({"event_ids": []}), "event_ids"),
        ("send_message_to_human", json.dumps({"message": "  "}), "message"),
        ("send_message_to_human", json.dumps({"message": "x" * (MAX_MESSAGE + 1)}), "message"),
    ],
)
def test_bad_calls_are_told_why(name: str, arguments: str, says: str) -> None:
    with pytest.raises(BadCall, match=says):
        parse(ToolCall("1", name, arguments))


def test_the_explanation_quotes_nothing_of_the_call() -> None:
    with pytest.raises(BadCall) as caught:
        parse(ToolCall("1", "defer_event", json.dumps({"event_id": "SECRET", "minutes": "SECRET", "reason": "x"})))
    assert "SECRET" not in str(caught.value)


@given(st.sampled_from([*TOOLS, "other", ""]), st.text(st.characters(), max_size=80))
def test_parsing_is_total(name: str, arguments: str) -> None:
    try:
        parse(ToolCall("1", name, arguments))
    except BadCall as error:
        assert str(error).encode()


@given(
    st.sampled_from(list(TOOLS)),
    st.dictionaries(
        st.sampled_from(["event_ids", "event_id", "minutes", "reason", "message", "notes"]),
        st.none() | st.integers() | st.text(max_size=10) | st.lists(st.text(max_size=5), max_size=3),
        max_size=4,
    ),
)
def test_parsing_any_object_is_total(name: str, arguments: dict[str, object]) -> None:
    try:
        parse(ToolCall("1", name, json.dumps(arguments)))
    except BadCall as error:
        assert str(error)


@given(st.lists(st.text(max_size=8) | st.just(EVENT) | st.just(EVENT.upper() + " "), max_size=8))
def test_ids_are_found_once(texts: list[str]) -> None:
    found, bad = event_ids(texts)
    assert set(found) <= {UUID(EVENT)}
    assert bad == sum(text.strip().lower() != EVENT for text in texts)


def test_descriptions_are_json_schemas() -> None:
    functions = [tool["function"] for tool in descriptions()]
    assert [function["name"] for function in functions if isinstance(function, dict)] == list(TOOLS)
    assert all(
        isinstance(function, dict) and function["description"] and function["parameters"]["type"] == "object"
        for function in functions
    )
