"""Settings of the matcher."""

from __future__ import annotations

from pydantic import Field

from room_common.cache.settings import RedisSettings
from room_common.kafka.settings import KafkaSettings
from room_common.llm.settings import LlmSettings, NamedLlmSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, PublicUrl, Section, ServiceSettings


class MatchingSettings(Section):
    """``ROOM_MATCHER__*``."""

    concurrency: int = Field(
        512,
        ge=1,
        le=20_000,
        description="Deliveries worked on at once; model calls have their own limit. The slow lane has a quarter.",
    )
    buffered: int = Field(
        1024,
        ge=1,
        le=20_000,
        description="Deliveries taken from Kafka and not yet decided. The slow lane has a quarter.",
    )
    source_share: int = Field(
        64,
        ge=1,
        le=20_000,
        description="Buffered deliveries of one source; what it sends beyond goes on in the slow lane.",
    )
    backlog_cap: int = Field(
        100, ge=1, le=10_000, description="Pending events of one instance beyond which nothing new is admitted."
    )
    config_seconds: float = Field(
        2.0, ge=0, le=2, description="How long the configuration of a source is remembered; at most 2 s."
    )
    ledger_rows: int = Field(500, ge=1, le=5000, description="Most outcomes written in one transaction.")
    ledger_seconds: float = Field(0.02, ge=0, le=5, description="Longest wait for more outcomes to write together.")
    max_output_tokens: int = Field(
        64, ge=1, le=8192, description="Limit of a verdict's length; models that think before they answer need more."
    )
    call_patience_seconds: float = Field(
        300.0,
        ge=0,
        le=3600,
        description="A model call that fails while the provider answers others is given up after so long (and 5 tries);"
        " at a rate limit after six times that. Its event goes to the dead-letter topic.",
    )
    probe_seconds: float = Field(
        5.0, gt=0, le=300, description="Seconds between two probes while a dependency is away."
    )


class MatcherSettings(ServiceSettings):
    """Everything the matcher reads from its environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    redis: RedisSettings = Field(default_factory=RedisSettings)
    llm: NamedLlmSettings = Field(default_factory=LlmSettings, validate_default=True)
    encryption: EncryptionSettings
    public_url: PublicUrl
    matcher: MatchingSettings = Field(default_factory=MatchingSettings)
