"""What is told of a dependency that is away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.advice import explain
from room_common.crypto import UnknownKey
from room_common.errors import DependencyUnavailable
from room_common.settings import variables
from room_common.settings_reference import find_models


def known_names() -> set[str]:
    return {variable.name for model in find_models().values() for variable in variables(model)}


@pytest.mark.parametrize("dependency", ["postgresql", "kafka", "redis", "llm"])
def test_a_variable_to_look_at_is_named_whatever_the_kind(dependency: str) -> None:
    told = explain(DependencyUnavailable(dependency, "something new", at="host:1"))
    assert told.startswith(f"{dependency}: something new at host:1 (")
    assert any(name in told for name in known_names())


def test_a_key_that_is_missing_says_where_it_belongs() -> None:
    assert "put the old key back" in explain(UnknownKey())
    assert "ROOM_ENCRYPTION__KEYS" in explain(UnknownKey())


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_is_unknown_is_told_as_it_is(dependency: str, kind: str) -> None:
    error = DependencyUnavailable(f"other {dependency}", kind)
    assert explain(error) == str(error)
