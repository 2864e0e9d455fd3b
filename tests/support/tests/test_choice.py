from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.errors import ConfigurationError
from room_testing.armed import parse, trigger
from room_testing.parts import choose


def there() -> str | None:
    return None


def missing() -> str | None:
    return "no Java"


def test_an_address_comes_first() -> None:
    choice = choose({"ROOM_TEST_KAFKA": "k:1", "ROOM_TEST_REDIS": "redis://r"}, there)
    assert (choice.kafka, choice.kafka_address, choice.redis_address) == ("address", "k:1", "redis://r")


def test_apache_kafka_where_it_can_run_else_wheels() -> None:
    assert choose({}, there).kafka == "apache"
    assert choose({}, missing).kafka == "wheels"
    assert "no Java" in choose({}, missing).describe()


def test_forced_wheels_even_where_apache_could_run() -> None:
    assert choose({"ROOM_TEST_PARTS": "wheels", "ROOM_TEST_KAFKA": "k:1"}, there).kafka == "wheels"


def test_forced_apache_never_falls_back() -> None:
    assert choose({"ROOM_TEST_PARTS": "apache"}, there).kafka == "apache"
    with pytest.raises(ConfigurationError, match="no Java"):
        choose({"ROOM_TEST_PARTS": "apache"}, missing)


def test_an_unknown_choice_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="apache, wheels"):
        choose({"ROOM_TEST_PARTS": "docker?"}, there)


@given(st.text(st.characters(categories=["L"]), min_size=1), st.integers(1, 50))
def test_a_crash_strikes_once_and_at_the_right_time(point: str, nth: int) -> None:
    strikes: list[int] = []
    passed = 0
    hook = trigger(*parse(f"{point}:{nth}"), lambda: strikes.append(passed))
    for _ in range(nth + 3):
        passed += 1
        hook("other point")
        hook(point)
    assert strikes == [nth]


def test_a_crash_without_a_number_is_the_first() -> None:
    assert parse("matcher.before_commit") == ("matcher.before_commit", 1)


@pytest.mark.parametrize("spec", ["", ":1", "point:0", "point:x", "point:-1"])
def test_a_wrong_crash_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="must be point"):
        parse(spec)
