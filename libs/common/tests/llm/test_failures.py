"""The class table of provider failures, and that it takes anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.errors import DependencyUnavailable, RoomError
from room_common.llm.failures import (
    LONGEST_RETRY_AFTER,
    ParameterRefused,
    classify,
    describe,
    retry_after,
)
from room_common.llm.port import EventRejected, OverrideRejected

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
errors = st.fixed_dictionaries(
    {}, optional={"error": json_values, "message": json_values, "code": json_values, "param": json_values}
)


@given(
    st.integers(300, 599),
    st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "x"]), st.text()),
    json_values | errors | st.builds(lambda error: {"error": error}, errors),
    st.booleans(),
)
def test_any_answer_has_a_class(status: int, headers: dict[str, str], body: object, override: bool) -> None:
    error = classify(describe(status, headers, body), override=override, now=NOW)
    assert isinstance(error, DependencyUnavailable | EventRejected | OverrideRejected | ParameterRefused)
    if status >= 500 or status in (401, 429):
        assert isinstance(error, DependencyUnavailable)
    if not override:
        assert not isinstance(error, OverrideRejected)


TOO_LARGE = "Request too large for gpt-x on tokens per min (TPM): Limit 10000, Requested 20000."


def test_a_prompt_that_no_waiting_gets_past_a_limit_is_at_fault_itself() -> None:
    answer = describe(429, {}, {"error": {"message": TOO_LARGE, "code": "rate_limit_exceeded", "type": "tokens"}})
    error = classify(answer, override=False, now=NOW)
    assert isinstance(error, EventRejected)
    assert (error.kind, error.status) == ("context_length", 429)
    own = classify(answer, override=True, now=NOW)  # the default model may have a larger one
    assert isinstance(own, DependencyUnavailable)
    assert own.kind == "rate_limit"


def refused(message: str, **error: object) -> RoomError:
    return classify(describe(400, {}, {"error": {"message": message, **error}}), override=False, now=NOW)


@pytest.mark.parametrize(
    ("message", "parameter"),
    [
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
            "max_tokens",
        ),
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("[{'type': 'extra_forbidden', 'loc': ['body', 'max_completion_tokens']}]", "max_completion_tokens"),
    ],
)
def test_a_parameter_room_can_do_without(message: str, parameter: str) -> None:
    error = refused(message, type="invalid_request_error")
    assert isinstance(error, ParameterRefused)
    assert error.parameter == parameter


def test_words_of_a_long_echo_do_not_decide() -> None:
    error = refused("Invalid schema. " + "x" * 600 + " the model gpt does not exist; temperature is not supported")
    assert isinstance(error, EventRejected)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e300"}, LONGEST_RETRY_AFTER),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@given(st.text())
def test_retry_after_takes_anything(value: str) -> None:
    seconds = retry_after({"retry-after": value}, NOW)
    assert seconds is None or 0 <= seconds <= LONGEST_RETRY_AFTER
