"""Settings of the model provider."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from room_common.errors import ConfigurationError
from room_common.llm.settings import LlmSettings, NamedLlmSettings
from room_common.settings import Section, parse_settings


def test_every_field_is_described() -> None:
    assert all(field.description for field in LlmSettings.model_fields.values())


def test_tiers() -> None:
    settings = LlmSettings(fast_model="small", standard_model="large")
    assert (settings.model("fast"), settings.timeout("fast")) == ("small", 20)
    assert (settings.model("standard"), settings.timeout("standard")) == ("large", 120)


def test_blank_is_absent_and_the_key_is_not_shown() -> None:
    assert LlmSettings.model_validate({"base_url": " ", "api_key": ""}) == LlmSettings()
    assert "hush" not in repr(LlmSettings.model_validate({"api_key": "hush"}))
    assert LlmSettings(base_url="http://127.0.0.1:1/v1/").base_url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("bad", [{"base_url": "localhost"}, {"max_retries": -1}, {"fast_timeout_seconds": 0}, {"x": 1}])
def test_wrong_values(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LlmSettings.model_validate(bad)


class Asking(Section):
    llm: NamedLlmSettings = Field(default_factory=LlmSettings, validate_default=True)


@pytest.mark.parametrize("environ", [{}, {"ROOM_LLM__FAST_MODEL": "x"}, {"ROOM_LLM__API_KEY": " "}])
def test_a_service_that_needs_a_provider_does_not_start_without(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"set ROOM_LLM__API_KEY for OpenAI, or ROOM_LLM__BASE_URL"):
        parse_settings(Asking, environ)


@pytest.mark.parametrize("environ", [{"ROOM_LLM__API_KEY": "k"}, {"ROOM_LLM__BASE_URL": "http://127.0.0.1:1/v1"}])
def test_a_key_or_an_address_names_one(environ: dict[str, str]) -> None:
    assert parse_settings(Asking, environ).llm.named
