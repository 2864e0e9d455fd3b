"""Settings of the compactor."""

from __future__ import annotations

from pydantic import Field

from room_common.kafka.settings import KafkaSettings
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import Section, ServiceSettings


class UpkeepSettings(Section):
    """How often and how gently it works. What is kept how long is a rule, not a setting."""

    check_seconds: float = Field(
        60.0, ge=0.1, le=3600, description="Seconds between two looks whether today's work (in UTC) is done."
    )
    retry_seconds: float = Field(
        600.0, ge=0.1, le=86400, description="Seconds to wait after a run in which something failed by its own fault."
    )
    batch_instances: int = Field(5000, ge=1, le=10_000, description="Rooms whose activity is aged in one transaction.")
    batch_daily_rows: int = Field(
        250_000, ge=1, le=1_000_000, description="Daily activity rows that one transaction should sum up at most."
    )
    batch_rows: int = Field(1000, ge=1, le=100_000, description="Old rows that one transaction deletes at most.")
    pause_seconds: float = Field(0.05, ge=0, le=60, description="Seconds between two transactions that delete.")


class AuditSettings(Section):
    """How closely deliveries are watched."""

    seconds: float = Field(
        60.0, ge=0.1, le=3600, description="Seconds between two comparisons of Kafka with the ledger."
    )
    window_seconds: float = Field(
        3600.0, ge=60, le=604_800, description="Seconds back from its start that the first comparison reaches."
    )


class CompactorSettings(ServiceSettings):
    """Everything the compactor reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    compactor: UpkeepSettings = Field(default_factory=UpkeepSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
