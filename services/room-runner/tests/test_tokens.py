"""Estimates of prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_runner.domain.tokens import Estimator, prompt_tokens, text_tokens


def test_bytes_by_three_rounded_up() -> None:
    assert text_tokens("") == 0
    assert text_tokens("abcd") == 2
    assert text_tokens("è€") == 2
    assert prompt_tokens([{"a": "b"}]) == 3


def test_it_learns_from_what_was_reported() -> None:
    assert Estimator().learned(300, 150).estimate(600) == 300
    assert Estimator().learned(300, 0) == Estimator()


@given(st.integers(-5, 10**9), st.integers(-5, 10**9), st.integers(0, 10**6))
def test_an_absurd_report_does_not_run_away(raw: int, reported: int, size: int) -> None:
    assert size // 5 - 1 <= Estimator().learned(raw, reported).estimate(size) <= size * 5
