"""Settings of Redis (``ROOM_REDIS__*``)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator


class RedisSettings(BaseModel):
    """Where Redis is. Room works without it: only latency and model costs change (design promise P11)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: SecretStr | None = Field(
        None,
        description="redis://, rediss:// or unix:// URL, credentials included. Empty: nothing is remembered.",
    )
    timeout_seconds: float = Field(
        0.05, gt=0, le=5, description="Longest wait for an answer; a slower one counts as not remembered."
    )

    @field_validator("url")
    @classmethod
    def _is_redis(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        if not value.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value
