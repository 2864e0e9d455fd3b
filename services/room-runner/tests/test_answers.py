"""What a model's answer means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.llm.port import Completion, ToolCall
from room_runner.domain.answers import spoken, storable

ANY_TEXT = st.text(st.characters(), max_size=60)


@pytest.mark.parametrize(
    "text",
    ["NO_MESSAGE", " no_message.\n", "`NO_MESSAGE`", "**NO_MESSAGE**", "", "  \n", "<think>hm</think> NO_MESSAGE"],
)
def test_silence(text: str) -> None:
    assert spoken(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("All is well.", "All is well."),
        ("NO_MESSAGE was what I wanted to say, but look:", "NO_MESSAGE was what I wanted to say, but look:"),
        ("<think>a</think><THINK>b</THINK>\n The deal closed. ", "The deal closed."),
        ("<think>cut off", None),
    ],
)
def test_what_is_said(text: str, said: str | None) -> None:
    assert spoken(text) == said


@given(ANY_TEXT, st.lists(st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT), max_size=6))
def test_every_answer_is_made_storable(text: str, calls: list[tuple[str, str, str]]) -> None:
    made = storable(Completion(text, tuple(ToolCall(*call) for call in calls)))
    parts = [made.text, *(part for call in made.tool_calls for part in (call.id, call.name, call.arguments))]
    assert all("\x00" not in part and part.encode() is not None for part in parts)
    assert all(call.id for call in made.tool_calls)
    assert len(made.tool_calls) == len(calls)


def test_equal_ids_are_told_apart() -> None:
    made = storable(Completion("", (ToolCall("a", "x", "{}"), ToolCall("a", "y", "{}"), ToolCall("", "z", "{}"))))
    assert len({call.id for call in made.tool_calls}) == 3


@given(ANY_TEXT)
def test_speaking_is_total(text: str) -> None:
    said = spoken(text)
    assert said is None or said == said.strip() != ""
