"""Settings of the model provider (``ROOM_LLM__*``)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from room_common.llm.port import Tier

OPENAI_URL = "https://api.openai.com/v1"


class LlmSettings(BaseModel):
    """Where the models are and how long Room waits for them. Any OpenAI-compatible server will do."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: str | None = Field(
        None, description="Base URL of an OpenAI-compatible API, with its /v1. Empty: the OpenAI API itself."
    )
    api_key: SecretStr | None = Field(None, description="API key. A local server that asks for none needs none.")
    fast_model: str = Field("gpt-4.1-mini", min_length=1, description="Model of tier fast: classification.")
    standard_model: str = Field("gpt-4.1", min_length=1, description="Model of tier standard: the cycles' supervisor.")
    fast_timeout_seconds: float = Field(20, gt=0, le=600, description="Longest wait for one try of tier fast.")
    standard_timeout_seconds: float = Field(120, gt=0, le=600, description="Longest wait for one try of tier standard.")
    connect_timeout_seconds: float = Field(5, gt=0, le=60, description="Longest wait for a connection to the provider.")
    max_retries: int = Field(2, ge=0, le=10, description="Further tries after one that failed for a passing reason.")
    retry_base_seconds: float = Field(0.5, gt=0, le=30, description="First back-off; doubles each time, with jitter.")
    retry_max_seconds: float = Field(
        10,
        gt=0,
        le=120,
        description="Longest back-off. A provider that asks for more with Retry-After is reported as away at once.",
    )
    total_factor: float = Field(
        2,
        ge=1,
        le=10,
        description="All tries of a call together take at most this many times the tier's timeout.",
    )
    concurrency: int = Field(32, ge=1, le=1000, description="Model calls in flight per process.")

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is None or not value.strip():
            return None
        url = value.strip()
        if not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _not_blank(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is not None and value.get_secret_value().strip() else None

    @property
    def named(self) -> bool:
        """Whether a provider was chosen at all: OpenAI asks for a key, others are named by their address."""
        return self.base_url is not None or self.api_key is not None

    def model(self, tier: Tier) -> str:
        """The default model of ``tier``."""
        return self.fast_model if tier == "fast" else self.standard_model

    def timeout(self, tier: Tier) -> float:
        """The longest wait for one try of ``tier``, in seconds."""
        return self.fast_timeout_seconds if tier == "fast" else self.standard_timeout_seconds


def _check_named(settings: LlmSettings) -> LlmSettings:
    if not settings.named:
        raise ValueError("no model provider: set ROOM_LLM__API_KEY for OpenAI, or ROOM_LLM__BASE_URL for another one")
    return settings


NamedLlmSettings = Annotated[LlmSettings, AfterValidator(_check_named)]
"""Of a service that can't work without a provider: better not started than asking OpenAI without a key for ever."""
