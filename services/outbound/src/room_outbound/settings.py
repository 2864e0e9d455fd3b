"""Settings of outbound."""

from __future__ import annotations

from pydantic import Field

from room_common.kafka.settings import KafkaSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import Section, ServiceSettings


class DeliverySettings(Section):
    """How messages are delivered."""

    local_inbox_url: str | None = Field(
        None,
        description="Base URL of the inbox behind the `local` channel; unset: messages to it fail as unconfigured.",
    )
    concurrency: int = Field(32, ge=1, le=1024, description="Deliveries under way at once in one process.")
    lease_seconds: float = Field(
        60.0, ge=15, le=600, description="Seconds a delivery may take before another process may take it over."
    )
    poll_seconds: float = Field(1.0, gt=0, le=60, description="Seconds between looks for retries that are due.")


class OutboundSettings(ServiceSettings):
    """Everything outbound reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    outbound: DeliverySettings = Field(default_factory=DeliverySettings)
