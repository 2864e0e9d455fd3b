"""Settings of the scheduler."""

from __future__ import annotations

from pydantic import Field

from room_common.kafka.settings import KafkaSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, PublicUrl, Section, ServiceSettings


class TickSettings(Section):
    """When rooms are woken."""

    tick_seconds: float = Field(
        30.0, ge=1, le=3600, description="Seconds between ticks, aligned to the database's clock."
    )
    page: int = Field(500, ge=1, le=5000, description="Due rooms read and woken at once.")
    spread: float = Field(
        0.5, ge=0, le=0.9, description="Share of the interval over which the ticks of many due rooms are spread."
    )
    reply_debounce_seconds: float = Field(
        2.0,
        ge=0,
        le=60,
        description="Seconds between a human reply and the cycle it starts, so that a second one joins.",
    )


class SchedulerSettings(ServiceSettings):
    """Everything the scheduler reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    encryption: EncryptionSettings
    public_url: PublicUrl
    scheduler: TickSettings = Field(default_factory=TickSettings)
