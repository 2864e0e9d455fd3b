"""The wire format takes whatever a server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, EventRejected
from room_common.llm.wire import Dialect, completion, decode, request_body

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
messages = json_values | st.fixed_dictionaries(
    {},
    optional={
        "content": json_values,
        "refusal": json_values,
        "tool_calls": json_values | st.lists(st.fixed_dictionaries({"function": json_values, "id": json_values})),
    },
)
bodies = json_values | st.fixed_dictionaries(
    {
        "choices": json_values
        | st.lists(st.fixed_dictionaries({"message": messages, "finish_reason": json_values}), max_size=2)
    },
    optional={"usage": json_values, "model": json_values},
)


@given(bodies)
def test_any_body_is_a_completion_or_a_named_failure(body: object) -> None:
    try:
        answer = completion(body, "asked")
    except (DependencyUnavailable, EventRejected):
        return
    assert isinstance(answer, Completion)
    assert answer.input_tokens >= 0
    json.dumps(answer.message())


@given(st.binary(max_size=200))
def test_any_bytes_decode(content: bytes) -> None:
    decode(content)


@pytest.mark.parametrize("text", ["plain", "\ud800", "\x00", "è 🙂"])
def test_any_text_goes_out(text: str) -> None:
    request = ChatRequest("fast", [{"role": "user", "content": text}])
    assert json.loads(request_body(request, "m", Dialect()))["messages"][0]["content"] == text


def test_what_lenient_servers_send() -> None:
    message: dict[str, Any] = {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "tool_calls": [{"function": {"name": "mark", "arguments": {"a": 1}}}],
    }
    answer = completion({"choices": [{"message": message}]}, "asked")
    assert answer.text == "ab"
    assert answer.finish_reason == "stop"
    assert answer.model == "asked"
    assert (answer.tool_calls[0].id, answer.tool_calls[0].arguments) == ("call_0", '{"a":1}')


def test_an_empty_answer_still_has_content_in_the_transcript() -> None:
    assert Completion("").message() == {"role": "assistant", "content": ""}


def test_a_dialect_gives_up_one_parameter_at_a_time() -> None:
    dialect = Dialect().without("max_completion_tokens")
    assert dialect.limit == "max_tokens"
    assert dialect.without("max_tokens") == Dialect(limit=None)
    assert Dialect().without("temperature") == Dialect(temperature=False)
    assert dialect.without("max_completion_tokens") == dialect
