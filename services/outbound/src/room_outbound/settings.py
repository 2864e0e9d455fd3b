"""Settings of outbound."""

from __future__ import annotations

from pydantic import Field

from room_common.egress.settings import EgressSettings
from room_common.kafka.settings import KafkaSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, Section, ServiceSettings


class DeliverySettings(Section):
    """How messages are delivered."""

    local_inbox_url: str | None = Field(
        None,
        description="Base URL of the inbox behind the `local` channel; unset: messages to it fail as unconfigured.",
    )
    slack_url: str = Field("https://slack.com/api", description="Base URL of Slack's Web API.")
    telegram_url: str = Field("https://api.telegram.org", description="Base URL of Telegram's Bot API.")
    twilio_url: str = Field("https://api.twilio.com", description="Base URL of Twilio's REST API.")
    concurrency: int = Field(32, ge=1, le=1024, description="Deliveries under way at once in one process.")
    lease_seconds: float = Field(
        60.0, ge=15, le=600, description="Seconds a delivery may take before another process may take it over."
    )
    poll_seconds: float = Field(1.0, gt=0, le=60, description="Seconds between looks for retries that are due.")


class OutboundSettings(ServiceSettings):
    """Everything outbound reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    encryption: EncryptionSettings
    egress: EgressSettings = Field(default_factory=EgressSettings)
    outbound: DeliverySettings = Field(default_factory=DeliverySettings)
