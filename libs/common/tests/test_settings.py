from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from room_common.errors import ConfigurationError
from room_common.settings import (
    SECTIONS,
    EncryptionSettings,
    PublicUrl,
    Section,
    ServiceSettings,
    TokenKeys,
    load_settings,
    parse_settings,
    section_of,
)
from room_common.settings_reference import find_models

KEYS = f"k2:{'a' * 64},k1:{'B' * 64}"


class Broker(Section):
    servers: tuple[str, ...] = Field(description="Where it is.")
    password: SecretStr | None = Field(None, description="Its password.")
    ca: str | None = Field(None, description="A certificate.")
    ca_file: str | None = Field(None, description="A file.")
    pin: SecretStr | None = Field(None, min_length=4, description="A number.")
    retries: int = Field(3, ge=0, description="How often.")


class Example(ServiceSettings):
    broker: Broker
    encryption: EncryptionSettings
    token_keys: TokenKeys
    public_url: PublicUrl = "http://localhost:8080"
    labels: dict[str, str] = Field(default_factory=dict, description="Labels.")


GOOD = {"ROOM_BROKER__SERVERS": "a:1, b:2", "ROOM_ENCRYPTION__KEYS": KEYS, "ROOM_TOKEN_KEYS": KEYS}


def problems(environ: dict[str, str]) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(Example, environ)
    lines = str(caught.value).splitlines()[1:]
    return {name: message for name, _, message in (line.strip().partition(": ") for line in lines)}


def test_values_reach_their_fields() -> None:
    settings = parse_settings(
        Example,
        {
            **GOOD,
            "ROOM_BROKER__PASSWORD": "pw",
            "ROOM_OPERATIONS__PORT": "1234",
            "ROOM_LABELS": '{"a":"b"}',
            "ROOM_PUBLIC_URL": "https://room.example/x/",
        },
    )
    assert settings.broker.servers == ("a:1", "b:2")
    assert settings.broker.password is not None
    assert settings.broker.password.get_secret_value() == "pw"
    assert settings.operations.port == 1234
    assert settings.operations.host == "0.0.0.0"
    assert settings.labels == {"a": "b"}
    assert settings.public_url == "https://room.example/x"
    assert settings.encryption.keys.get_secret_value() == KEYS


def test_models_are_frozen_and_never_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOM_OPERATIONS__PORT", "1")
    settings = ServiceSettings()
    assert settings.operations.port == 9464
    with pytest.raises(ValueError, match="frozen"):
        settings.operations = settings.operations  # type: ignore[misc]


def test_every_problem_is_reported_at_once_under_its_variable() -> None:
    found = problems({"ROOM_BROKER__RETRIES": "many", "ROOM_TOKEN_KEYS": "k1:beef", "ROOM_BROKER__SERVRES": "x"})
    assert set(found) == {
        "ROOM_BROKER__SERVERS",
        "ROOM_BROKER__RETRIES",
        "ROOM_BROKER__SERVRES",
        "ROOM_ENCRYPTION__KEYS",
        "ROOM_TOKEN_KEYS",
    }
    assert found["ROOM_BROKER__SERVERS"] == "is missing. Where it is."
    assert found["ROOM_BROKER__RETRIES"] == "should be a whole number"
    assert found["ROOM_BROKER__SERVRES"] == "there is no such setting; did you mean ROOM_BROKER__SERVERS?"


def test_unknown_names_outside_our_sections_are_ignored() -> None:
    parse_settings(Example, {**GOOD, "ROOM_OTHER__THING": "x", "ROOM_BROKER_PORT": "x", "ROOM_WHATEVER": "y"})


def test_an_empty_variable_counts_as_unset() -> None:
    assert parse_settings(Example, {**GOOD, "ROOM_BROKER__RETRIES": "", "ROOM_BROKER__X": ""}).broker.retries == 3


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from file\n")
    settings = parse_settings(Example, {**GOOD, "ROOM_BROKER__PASSWORD_FILE": str(secret)})
    assert settings.broker.password == SecretStr("from file")


def test_a_field_whose_name_ends_in_file_is_itself() -> None:
    settings = parse_settings(Example, {**GOOD, "ROOM_BROKER__CA_FILE": "/etc/ca.pem"})
    assert settings.broker.ca_file == "/etc/ca.pem"
    assert settings.broker.ca is None


def test_what_is_wrong_with_a_secret_is_not_told_by_the_library() -> None:
    assert problems({**GOOD, "ROOM_BROKER__PIN": "123"})["ROOM_BROKER__PIN"] == "is not valid"


def test_a_value_given_twice_is_refused(tmp_path: Path) -> None:
    environ = {**GOOD, "ROOM_BROKER__PASSWORD": "x", "ROOM_BROKER__PASSWORD_FILE": str(tmp_path / "y")}
    assert "given twice" in problems(environ)["ROOM_BROKER__PASSWORD"]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "can't be read"), (b"\xff\xfe\xfa", "not UTF-8"), (b"x" * 70_000, "65536")]
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    found = problems({**GOOD, "ROOM_BROKER__PASSWORD_FILE": str(path)})
    assert message in found["ROOM_BROKER__PASSWORD"]
    assert "ROOM_BROKER__PASSWORD_FILE" in found["ROOM_BROKER__PASSWORD"]


@pytest.mark.parametrize(
    "url", ["room.example", "https://u:p@room.example", "https://room.example?x=1", "ftp://x", "https:///x"]
)
def test_public_url_is_checked(url: str) -> None:
    assert "http(s)://host" in problems({**GOOD, "ROOM_PUBLIC_URL": url})["ROOM_PUBLIC_URL"]


def test_load_settings_exits_with_2_and_never_shows_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    secret = f"k1:{'c' * 63}"
    with pytest.raises(SystemExit) as caught:
        load_settings(Example, {**GOOD, "ROOM_ENCRYPTION__KEYS": secret})
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert "ROOM_ENCRYPTION__KEYS" in printed
    assert "c" * 8 not in printed


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_no_value_of_a_wrong_setting_is_ever_repeated(value: str) -> None:
    marked = f"S3CR3T{value}"
    environ = {**GOOD, "ROOM_TOKEN_KEYS": marked, "ROOM_BROKER__RETRIES": marked, "ROOM_LABELS": marked}
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(Example, environ)
    assert "S3CR3T" not in str(caught.value)


@pytest.mark.parametrize("near", ["ROOM_BROKER_SERVERS", "ROOM_BROKER__SERVER_S", "ROOM_BROKERS__SERVERS"])
def test_a_missing_variable_is_found_under_a_name_that_is_nearly_its_own(near: str) -> None:
    environ = {name: value for name, value in GOOD.items() if name != "ROOM_BROKER__SERVERS"}
    told = problems({**environ, near: "a:1"})
    assert near in told["ROOM_BROKER__SERVERS"] or "did you mean ROOM_BROKER__SERVERS?" in told.get(near, "")


def test_a_section_that_nobody_has_and_nearly_is_ours_is_a_mistake() -> None:
    told = problems({**GOOD, "ROOM_BROCKER__RETRIES": "5"})
    assert told == {"ROOM_BROCKER__RETRIES": "there is no such setting; did you mean ROOM_BROKER__RETRIES?"}


def test_the_sections_of_all_services_are_known() -> None:
    found = {
        name
        for model in find_models().values()
        for name, field in model.model_fields.items()
        if section_of(field.annotation)
    }
    assert found == SECTIONS


def test_the_first_line_names_the_document() -> None:
    with pytest.raises(ConfigurationError, match=r"2 wrong or missing setting\(s\), see docs/configuration.md:"):
        parse_settings(Example, {"ROOM_BROKER__SERVERS": "a:1"})


def test_help_tells_what_there_is_to_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["room_example", "--help"])
    with pytest.raises(SystemExit) as caught:
        load_settings(Example)
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "ROOM_BROKER__SERVERS (required)\n    Where it is." in printed
