"""What room-matcher is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from room_common.cache.memory import RedisVerdictMemory
from room_common.coalescing import Coalescer
from room_common.contracts.topics import MATCHER_GROUP, MATCHER_SLOW_GROUP, WEBHOOKS_RAW, WEBHOOKS_SLOW
from room_common.crypto import Keyring
from room_common.faults import crash_point
from room_common.kafka.execution import Handling, Limits
from room_common.kafka.executor import Executor
from room_common.kafka.producer import Producer
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.postgres import backlog
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter
from room_matcher.adapters.admission import Admission
from room_matcher.adapters.fair_slots import FairSlots
from room_matcher.adapters.ledger_writer import LedgerWriter
from room_matcher.adapters.patient_llm import PatientLlm
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.adapters.source_secrets import SourceSecrets
from room_matcher.handlers.classifier import AGAIN, Classifier
from room_matcher.handlers.dead_gate import DeadGate
from room_matcher.handlers.dead_letters import DeadLetters
from room_matcher.handlers.deliveries import Deliveries
from room_matcher.handlers.fallback_alerts import FallbackAlerts
from room_matcher.handlers.items import Items
from room_matcher.handlers.opened import OpenedRecords
from room_matcher.handlers.slow_lane import SlowLane
from room_matcher.metrics import MatcherMetrics
from room_matcher.settings import MatcherSettings, MatchingSettings

GROUP: Final = MATCHER_GROUP
SLOW_GROUP: Final = MATCHER_SLOW_GROUP
SLOW_PART: Final = 4
"""The slow lane has one of so many parts of the places, and so have further tries of model calls that failed."""

REST_PROBES: Final = 12
"""A record whose key is missing is looked at again after so many times the pause between two probes."""


def compose(context: Context[MatcherSettings]) -> Sequence[Part]:
    """The parts in the order they start. The executors come after all that their handlers use, and stop before it."""
    settings, registry = context.settings, context.registry
    own = settings.matcher
    metrics = MatcherMetrics(registry)
    database = Database(settings.database, application_name=GROUP, registry=registry)
    memory = RedisVerdictMemory(settings.redis, registry)
    llm = OpenAiLlm(settings.llm, registry)
    producer = Producer(settings.kafka, registry)
    writer = LedgerWriter(database, rows=own.ledger_rows, seconds=own.ledger_seconds)
    sources = SourceCache(database, own.config_seconds)
    opened = OpenedRecords(2 * own.buffered)
    slow_lane = SlowLane(producer, opened, metrics, rest=REST_PROBES * own.probe_seconds)
    slots = FairSlots(settings.llm.concurrency)
    for key in (WEBHOOKS_SLOW, AGAIN):
        slots.limit(key, settings.llm.concurrency // SLOW_PART)
    executors: list[Executor] = []

    async def pending(instance_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        crash_point("matcher.before_pending")
        async with database.transaction() as conn:
            found = await backlog.pending_of(conn, instance_ids, own.backlog_cap)
        crash_point("matcher.after_pending")
        return found

    def hold(reason: str, seconds: float) -> None:
        for executor in executors:
            executor.hold(reason, wish=seconds)

    def release(reason: str) -> None:
        for executor in executors:
            executor.release(reason)

    items = Items(
        database=database,
        sources=sources,
        writer=writer,
        admission=Admission(Coalescer(pending).ask, own.backlog_cap),
        classifier=Classifier(
            PatientLlm(llm, metrics.retried_call, patience=own.call_patience_seconds),
            memory,
            slots,
            metrics,
            default_model=settings.llm.fast_model,
            max_output_tokens=own.max_output_tokens,
        ),
        dead_letters=DeadLetters(producer, registry),
        fallbacks=FallbackAlerts(database),
        gate=DeadGate(metrics, hold, release),
        metrics=metrics,
        cap=own.backlog_cap,
    )
    deliveries = Deliveries(
        database=database,
        sources=sources,
        secrets=SourceSecrets(Keyring.parse(settings.encryption.keys.get_secret_value()), settings.public_url),
        items=items,
        opened=opened,
        slow_lane=slow_lane,
        metrics=metrics,
        attempts=Limits().attempts,
    )
    handling = Handling(
        deliveries.handle,
        deliveries.on_poison,
        dedup_key=deliveries.dedup_key,
        already_done=deliveries.already_done,
        share_key=deliveries.share_key,
        divert=slow_lane.take_excess,
    )
    executors += [
        Executor(
            settings.kafka, registry, group=GROUP, topics=(WEBHOOKS_RAW,), handling=handling, limits=_limits(own, 1)
        ),
        Executor(
            settings.kafka,
            registry,
            group=SLOW_GROUP,
            topics=(WEBHOOKS_SLOW,),
            handling=replace(handling, divert=None),
            limits=_limits(own, SLOW_PART),
        ),
    ]
    state = StateReporter(
        database,
        context,
        held=lambda: ", ".join(dict.fromkeys(reason for executor in executors for reason in executor.held)) or None,
        lag=lambda: sum(executor.lag for executor in executors),
    )
    return [database, SchemaGate(database), memory, llm, producer, writer, state, *executors]


def _limits(own: MatchingSettings, part: int) -> Limits:
    """The slow lane has a quarter of everything."""
    return Limits(
        concurrency=max(1, own.concurrency // part),
        buffered=max(1, own.buffered // part),
        share=own.source_share,
        probe=own.probe_seconds,
    )
