"""Settings of the model provider."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from room_common.llm.settings import LlmSettings


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
