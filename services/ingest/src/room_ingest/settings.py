"""Settings of ingest."""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr

from room_common.kafka.settings import KafkaSettings
from room_common.settings import Section, ServiceSettings, TokenKeys

MAX_BODY: Final = 65_536
"""Bytes of a request body that is taken. Fixed: consumers and the broker's limits depend on it."""


class HttpSettings(Section):
    """``ROOM_INGEST__*``."""

    host: str = Field("0.0.0.0", description="Address that the webhook port listens on.")  # noqa: S104
    port: int = Field(8080, ge=0, le=65_535, description="Port for webhooks and replies; 0 takes a free one.")
    reuse_port: bool = Field(
        False, description="Let several processes listen on the port; the kernel spreads connections (SO_REUSEPORT)."
    )
    backlog: int = Field(2048, ge=1, le=65_535, description="Connections that may wait to be accepted.")
    max_connections: int = Field(
        4096, ge=1, description="Open connections of one process; each may hold one body of 64 KiB."
    )
    headers_seconds: float = Field(5.0, gt=0, description="Seconds in which a request's headers have to arrive.")
    body_seconds: float = Field(10.0, gt=0, description="Seconds in which a request's body has to arrive.")
    idle_seconds: float = Field(75.0, gt=0, description="Seconds after which a connection without a request closes.")
    max_header_bytes: int = Field(32_768, ge=1024, description="Bytes of one request's line and headers together.")
    max_target_bytes: int = Field(8192, ge=256, description="Bytes of one request's target: path and query.")
    max_pipelined: int = Field(
        64, ge=1, description="Unanswered requests of one connection above which nothing more is read from it."
    )
    acknowledge_seconds: float = Field(
        1.5,
        gt=0,
        le=60,
        description="Seconds to wait for Kafka; then the record goes to the overflow table, or the sender gets 503.",
    )
    kafka_request_seconds: float = Field(
        4.0, gt=0, le=60, description="Seconds after which a request to a broker is given up and its connection closed."
    )
    max_in_flight: int = Field(10_000, ge=1, description="Requests of one process that may wait for Kafka.")
    max_in_flight_bytes: int = Field(
        128 << 20, ge=1 << 20, description="Bytes of bodies and headers of one process that may wait for Kafka."
    )
    max_in_flight_per_token: int = Field(2000, ge=1, description="Requests with one token that may wait for Kafka.")
    max_in_flight_bytes_per_token: int = Field(
        32 << 20, ge=1 << 18, description="Bytes of bodies and headers with one token that may wait for Kafka."
    )
    rate_per_token: float = Field(
        1000.0, ge=0, description="Requests a second with one token and process beyond which it gets 503; 0: no limit."
    )
    burst_per_token: int = Field(10_000, ge=1, description="Requests above the rate that one token may send at once.")
    drain_seconds: float = Field(
        8.0, ge=0, description="Seconds a stopping process gives requests in hand and clients that are still reading."
    )
    access_log: bool = Field(False, description="Log a line for each request, with the route but never the token.")


class OverflowSettings(Section):
    """``ROOM_OVERFLOW__*``: where records go that Kafka does not acknowledge in time."""

    dsn: SecretStr | None = Field(
        None,
        description="PostgreSQL for what Kafka does not acknowledge in time, as a member of `room_ingest_overflow` and "
        "of nothing else. Without it such a request gets 503.",
    )
    max_bytes: int = Field(1 << 30, ge=0, description="Bytes of keys, bodies and headers that the table may hold.")
    max_rows: int = Field(1_000_000, ge=0, description="Records that the table may hold.")
    connect_seconds: float = Field(1.5, gt=0, le=60, description="Seconds to wait for a connection.")
    write_seconds: float = Field(
        2.0, gt=0, le=60, description="Seconds in which a write has to be committed; then the sender gets 503."
    )
    drain_rows: int = Field(
        200, ge=1, le=10_000, description="Records brought to Kafka at a time; as long as that takes, nothing follows."
    )
    look_seconds: float = Field(
        60.0, gt=0, description="Seconds between looks for what a process that is gone left in the table."
    )


class IngestSettings(ServiceSettings):
    """All that ``room-ingest`` reads."""

    kafka: KafkaSettings = Field(description="How to reach Kafka.")
    token_keys: TokenKeys
    overflow: OverflowSettings = Field(default_factory=OverflowSettings)
    ingest: HttpSettings = Field(default_factory=HttpSettings)
