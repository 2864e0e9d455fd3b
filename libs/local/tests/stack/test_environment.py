from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_local.environment import (
    Addresses,
    override,
    service_settings,
    shared_settings,
    shell_file,
    uses_real_model,
    without_rehearsal,
)
from room_local.files import StackFiles
from room_local.options import StackOptions

PORTS = {"ingest": 8080, "admin": 8090, "inbox": 3, "rehearsal": 4}
FILES = StackFiles(Path("/somewhere"))


def addresses(database: str = "postgresql://postgres@/room?host=%2Fx", ports: dict[str, int] = PORTS) -> Addresses:
    return Addresses("127.0.0.1:1", database, "postgresql://room_ingest@/room", "unix:///r", ports, {"ingest": 8081})


def test_idempotence_is_off_only_for_the_embedded_broker() -> None:
    embedded = shared_settings(addresses(), FILES, StackOptions())
    apache = shared_settings(addresses(), FILES, StackOptions(kafka="apache"))
    assert embedded["ROOM_KAFKA__IDEMPOTENCE"] == "false"
    assert "ROOM_KAFKA__IDEMPOTENCE" not in apache


def test_the_public_url_is_the_one_that_was_given() -> None:
    here = shared_settings(addresses(ports={"ingest": 7}), FILES, StackOptions())
    behind = shared_settings(addresses(ports={"ingest": 7}), FILES, StackOptions(public_url="https://r.example"))
    assert (here["ROOM_PUBLIC_URL"], behind["ROOM_PUBLIC_URL"]) == ("http://127.0.0.1:7", "https://r.example")


def test_secrets_are_named_by_file_and_never_given_as_values() -> None:
    settings = shared_settings(addresses(), FILES, StackOptions())
    assert settings["ROOM_TOKEN_KEYS_FILE"] == "/somewhere/.room/keys/token-keys"
    assert "ROOM_TOKEN_KEYS" not in settings


def test_without_rehearsal_the_model_settings_stay_the_persons_own() -> None:
    settings = service_settings(addresses(ports={"ingest": 1, "admin": 2}), FILES, StackOptions(tick_seconds=2))
    assert not [name for name in settings if name.startswith("ROOM_LLM__")]
    assert settings["ROOM_SCHEDULER__TICK_SECONDS"] == "2"


def test_a_real_model_is_recognised_by_key_or_url() -> None:
    assert uses_real_model({"ROOM_LLM__API_KEY": "k"})
    assert uses_real_model({"ROOM_LLM__BASE_URL": "http://x/v1"})
    assert not uses_real_model({"ROOM_LLM__API_KEY": "", "OTHER": "x"})


def test_a_setting_and_its_file_form_never_meet() -> None:
    inherited = {"ROOM_TOKEN_KEYS": "mine", "ROOM_REDIS__URL_FILE": "/f", "PATH": "/bin"}
    result = override(inherited, {"ROOM_TOKEN_KEYS_FILE": "/k", "ROOM_REDIS__URL": "unix:///r"})
    assert result == {"PATH": "/bin", "ROOM_TOKEN_KEYS_FILE": "/k", "ROOM_REDIS__URL": "unix:///r"}


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_the_shell_file_gives_a_shell_exactly_the_values(value: str) -> None:
    content = shell_file(addresses(database=value), FILES, StackOptions())
    line = next(part for part in content.split("export ") if part.startswith("ROOM_DATABASE__DSN="))
    done = subprocess.run(["sh", "-c", f'{line}printf %s "$ROOM_DATABASE__DSN"'], capture_output=True, timeout=10)
    assert done.stdout.decode() == value


def sourced(ports: dict[str, int]) -> dict[str, str]:
    lines = shell_file(addresses(ports=ports), FILES, StackOptions(tick_seconds=3)).splitlines()[1:]
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


def test_the_shell_file_gives_what_services_get() -> None:
    own = service_settings(addresses(), FILES, StackOptions(tick_seconds=3))
    missing = {**shared_settings(addresses(), FILES, StackOptions()), **own}.items() - sourced(PORTS).items()
    assert {name for name, _ in missing} == {"ROOM_LOG__FORMAT", "PYTHONUNBUFFERED"}


def test_a_later_start_in_that_shell_still_has_its_rehearsal() -> None:
    shell = sourced(PORTS)
    assert shell["ROOM_LLM__BASE_URL"] == "http://127.0.0.1:4/v1"
    assert not uses_real_model(shell)
    assert not [name for name in without_rehearsal(shell) if name.startswith("ROOM_LLM__")]


@pytest.mark.parametrize("name", ["ROOM_LLM__API_KEY", "ROOM_LLM__BASE_URL"])
def test_a_model_chosen_in_that_shell_counts(name: str) -> None:
    shell = {**sourced(PORTS), name: "https://models.example.com/v1"}
    assert uses_real_model(shell)
    chosen = {key: value for key, value in without_rehearsal(shell).items() if key.startswith("ROOM_LLM__")}
    assert chosen == {name: "https://models.example.com/v1"}
