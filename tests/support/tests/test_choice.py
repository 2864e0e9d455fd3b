from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.errors import ConfigurationError
from room_testing.armed import parse, trigger
from room_testing.containers import engine_missing
from room_testing.parts import Choice, Parts, choose


def there() -> str | None:
    return None


def missing() -> str | None:
    return "no Java"


def no_engine() -> str | None:
    return "no Docker engine answers"


def test_an_address_comes_first() -> None:
    choice = choose({"ROOM_TEST_KAFKA": "k:1", "ROOM_TEST_REDIS": "redis://r"}, there)
    assert (choice.kafka, choice.kafka_address, choice.redis_address) == ("address", "k:1", "redis://r")


def test_apache_kafka_where_it_can_run_else_wheels() -> None:
    assert choose({}, there, no_engine).kafka == "apache"
    assert choose({}, missing, no_engine).kafka == "wheels"
    assert "no Java" in choose({}, missing, no_engine).describe()


def test_containers_where_an_engine_answers_and_never_when_something_else_is_forced() -> None:
    choice = choose({}, there, there)
    assert choice.kafka == "docker"
    assert not choice.starts_database
    assert "postgresql: container" in choice.describe()
    assert choose({"ROOM_TEST_PARTS": "docker"}, missing, there).kafka == "docker"
    assert choose({"ROOM_TEST_PARTS": "apache"}, there, there).kafka == "apache"
    assert choose({"ROOM_TEST_PARTS": "wheels"}, there, there).kafka == "wheels"
    with pytest.raises(ConfigurationError, match="no Docker engine"):
        choose({"ROOM_TEST_PARTS": "docker"}, there, no_engine)


def test_servers_in_containers_are_not_for_tests_of_faults() -> None:
    parts = Parts(Choice("docker", "a Docker engine answers"))
    for ask in (parts.broker, parts.cluster, parts.postgres, parts.redis):
        with pytest.raises(LookupError, match="loses its address"):
            ask()


def test_a_client_without_an_engine_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "docker"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_missing() == "there is no docker command"
    client.write_text("#!/bin/sh\nexit 1\n")
    client.chmod(0o755)
    assert engine_missing() == "no Docker engine answers"
    client.write_text("#!/bin/sh\necho 28.2.2\n")
    assert engine_missing() is None


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
