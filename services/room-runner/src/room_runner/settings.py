"""Settings of room-runner."""

from __future__ import annotations

from pydantic import Field, model_validator

from room_common.egress.settings import EgressSettings
from room_common.kafka.settings import KafkaSettings
from room_common.llm.settings import LlmSettings, NamedLlmSettings
from room_common.postgres.leases import Backoff
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, Section, ServiceSettings


class CycleSettings(Section):
    """How cycles are claimed and run."""

    slots: int = Field(8, ge=1, le=2048, description="Cycles under way at once in one process.")
    claim_seconds: float = Field(2.0, gt=0, le=60, description="Seconds between looks for an awake room.")
    lease_seconds: float = Field(30.0, ge=1, le=600, description="Seconds a lease lasts without renewal.")
    renew_seconds: float = Field(8.0, ge=0.1, le=200, description="Seconds between renewals of all leases.")
    fence_seconds: float = Field(
        20.0, ge=0.2, le=500, description="Seconds without renewal after which a worker stops a cycle by itself."
    )
    sweep_seconds: float = Field(5.0, gt=0, le=60, description="Seconds between looks for leases that ran out.")
    max_resumes: int = Field(
        3, ge=0, le=100, description="Workers that a cycle may lose in a row without a new step before it is abandoned."
    )
    drain_seconds: float = Field(
        45.0, ge=0, le=600, description="Seconds that running cycles get to reach the end of a step at a stop."
    )
    max_events: int = Field(20, ge=1, le=100, description="Most events of one cycle.")
    max_replies: int = Field(20, ge=1, le=100, description="Most human messages of one cycle.")
    prompt_tokens: int = Field(
        48_000, ge=1_000, le=1_000_000, description="Estimated tokens of the events in a cycle's first prompt."
    )
    context_tokens: int = Field(
        120_000, ge=2_000, le=10_000_000, description="Estimated tokens of a whole prompt above which a cycle fails."
    )
    max_steps: int = Field(15, ge=1, le=100, description="Most model calls of one cycle.")
    max_output_tokens: int = Field(4_096, ge=64, le=65_536, description="Most tokens of one answer.")
    call_seconds: float = Field(120.0, gt=0, le=600, description="Longest wait for one try of a model call.")
    deadline_seconds: float = Field(600.0, gt=0, le=7200, description="Longest time of one cycle under leases.")
    provider_wait_seconds: float = Field(
        60.0, ge=0, le=600, description="Seconds a running cycle waits for a model provider in trouble."
    )
    probe_seconds: float = Field(
        30.0, ge=0.1, le=600, description="Seconds between probes of a model provider in trouble."
    )
    max_attempts: int = Field(5, ge=1, le=100, description="Attempts after which an event is failed.")
    max_fails: int = Field(5, ge=1, le=100, description="Failed cycles in a row after which a room is parked.")
    max_deferrals: int = Field(10, ge=0, le=1000, description="How often an event may be deferred.")
    backoff_seconds: float = Field(
        30.0, gt=0, le=3600, description="Wait after a first failed attempt; doubles each time."
    )
    backoff_max_seconds: float = Field(1800.0, gt=0, le=86_400, description="Longest such wait.")
    relay_seconds: float = Field(1.0, gt=0, le=60, description="Seconds between looks for messages to publish.")
    relay_takeover_seconds: float = Field(
        3.0, ge=0, le=600, description="Age from which a queued message is published by any worker."
    )
    republish_seconds: float = Field(
        600.0, ge=1, le=86_400, description="Seconds without progress after which a message is published again."
    )

    @model_validator(mode="after")
    def _ordered(self) -> CycleSettings:
        if not self.renew_seconds * 2 <= self.fence_seconds < self.lease_seconds:
            raise ValueError("a lease needs 2 x renew_seconds <= fence_seconds < lease_seconds")
        return self

    @property
    def event_backoff(self) -> Backoff:
        """How an event is tried again."""
        return Backoff(self.backoff_seconds, self.backoff_max_seconds, self.max_attempts)

    @property
    def room_backoff(self) -> Backoff:
        """How a room is tried again after a failed cycle."""
        return Backoff(self.backoff_seconds, self.backoff_max_seconds, self.max_fails)


class ToolSettings(Section):
    """How outside tools are called."""

    call_seconds: float = Field(60.0, gt=0, le=600, description="Longest call of an outside tool.")
    threads: int = Field(16, ge=1, le=256, description="Calls of blocking Python tools at once in one process.")


class RunnerSettings(ServiceSettings):
    """Everything room-runner reads from the environment."""

    kafka: KafkaSettings
    database: DatabaseSettings
    llm: NamedLlmSettings = Field(default_factory=LlmSettings, validate_default=True)
    encryption: EncryptionSettings
    egress: EgressSettings = Field(default_factory=EgressSettings)
    runner: CycleSettings = Field(default_factory=CycleSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
