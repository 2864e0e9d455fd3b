"""How to reach Kafka: one section, shared by every service."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


class SecurityProtocol(StrEnum):
    """Kafka's own names for plain or encrypted, anonymous or authenticated connections."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticated(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class SaslMechanism(StrEnum):
    """The mechanisms that need a user name and a password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class KafkaSettings(BaseModel):
    """``ROOM_KAFKA__*``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = Field(description="Comma-separated host:port of one or more brokers.")
    security_protocol: SecurityProtocol = Field(
        SecurityProtocol.PLAINTEXT, description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    )
    sasl_mechanism: SaslMechanism = Field(
        SaslMechanism.SCRAM_SHA_512, description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; used by the SASL protocols."
    )
    sasl_username: str | None = Field(None, description="User name for SASL.")
    sasl_password: SecretStr | None = Field(None, description="Password for SASL.")
    ca_file: Path | None = Field(
        None, description="PEM file with the authorities that sign the brokers' certificates; the system's when unset."
    )
    idempotence: bool = Field(
        True, description="Let the broker drop the producer's own retries. Off for brokers without InitProducerId."
    )
    replication_factor: int = Field(3, ge=1, le=32_767, description="Copies of each partition in topics made by us.")
    min_insync_replicas: int = Field(
        2,
        ge=1,
        le=32_767,
        description="Copies that must hold a record before it is acknowledged.",
    )
    request_timeout_ms: int = Field(
        10_000, ge=1_000, le=300_000, description="Milliseconds after which a request to a broker is given up."
    )
    send_timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=600,
        description="Seconds to wait for a record's acknowledgement.",
    )
    session_timeout_ms: int = Field(
        15_000,
        ge=6_000,
        le=300_000,
        description="Milliseconds without a heartbeat after which a consumer's partitions go to others.",
    )
    heartbeat_interval_ms: int = Field(
        3_000, ge=100, le=60_000, description="Milliseconds between a consumer's heartbeats."
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers(cls, value: str) -> str:
        servers = [server.strip() for server in value.split(",") if server.strip()]
        if not servers:
            raise ValueError("name at least one broker as host:port")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise ValueError("each broker is written host:port")
        return ",".join(servers)

    @model_validator(mode="after")
    def _consistent(self) -> KafkaSettings:
        if self.security_protocol.authenticated and (not self.sasl_username or self.sasl_password is None):
            raise ValueError(f"{self.security_protocol} needs sasl_username and sasl_password")
        if self.min_insync_replicas > self.replication_factor:
            raise ValueError("min_insync_replicas must not be greater than replication_factor")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be at most a third of session_timeout_ms")
        return self
