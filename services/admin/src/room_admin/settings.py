"""Settings of admin."""

from __future__ import annotations

from pydantic import Field, SecretStr

from room_common.kafka.settings import KafkaSettings
from room_common.llm.settings import LlmSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, PublicUrl, Section, ServiceSettings, TokenKeys


class ApiSettings(Section):
    """Where the API listens, and its first token."""

    host: str = Field("0.0.0.0", description="Address that the API listens on.")  # noqa: S104
    port: int = Field(8090, ge=0, le=65535, description="Port of the API; 0 takes a free one.")
    bootstrap_token: SecretStr | None = Field(
        None, min_length=16, description="Becomes the first operator's token; ignored once there is an operator."
    )
    test_calls: int = Field(8, ge=1, le=256, description="Model calls at once while a definition is tested.")
    test_seconds: float = Field(
        100.0, gt=0, le=600, description="Longest time a test of a definition takes; what was asked by then is shown."
    )


class AdminSettings(ServiceSettings):
    """Everything admin reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    llm: LlmSettings = Field(default_factory=LlmSettings)
    encryption: EncryptionSettings
    token_keys: TokenKeys
    public_url: PublicUrl
    admin: ApiSettings = Field(default_factory=ApiSettings)
