from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from room_local.environment import (
    Addresses,
    override,
    service_settings,
    shared_settings,
    shell_file,
    uses_real_model,
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


def test_the_shell_file_does_not_choose_a_model() -> None:
    assert "ROOM_LLM__" not in shell_file(addresses(), FILES, StackOptions())
