"""What room-matcher is made of."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from room_common.cache.memory import RedisVerdictMemory
from room_common.contracts.topics import WEBHOOKS_RAW
from room_common.crypto import Keyring
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
from room_matcher.adapters.ledger_writer import LedgerWriter
from room_matcher.adapters.patient_llm import PatientLlm
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.adapters.source_secrets import SourceSecrets
from room_matcher.handlers.classifier import Classifier
from room_matcher.handlers.dead_letters import DeadLetters
from room_matcher.handlers.deliveries import Deliveries
from room_matcher.handlers.fallback_alerts import FallbackAlerts
from room_matcher.handlers.items import Items
from room_matcher.metrics import MatcherMetrics
from room_matcher.settings import MatcherSettings

GROUP = "room-matcher"


def compose(context: Context[MatcherSettings]) -> Sequence[Part]:
    """The parts in the order they start. The executor comes after all that its handlers use, and stops before it."""
    settings, registry = context.settings, context.registry
    own = settings.matcher
    metrics = MatcherMetrics(registry)
    database = Database(settings.database, application_name=GROUP, registry=registry)
    memory = RedisVerdictMemory(settings.redis, registry)
    llm = OpenAiLlm(settings.llm, registry)
    producer = Producer(settings.kafka, registry)
    writer = LedgerWriter(database, rows=own.ledger_rows, seconds=own.ledger_seconds)
    sources = SourceCache(database, own.config_seconds)
    limits = Limits(concurrency=own.concurrency, buffered=own.buffered, probe=own.probe_seconds)

    async def pending(instance_id: UUID) -> int:
        async with database.transaction() as conn:
            return await backlog.pending(conn, instance_id, own.backlog_cap)

    items = Items(
        database=database,
        sources=sources,
        writer=writer,
        admission=Admission(pending, own.backlog_cap),
        classifier=Classifier(
            PatientLlm(llm),
            memory,
            metrics,
            default_model=settings.llm.fast_model,
            max_output_tokens=own.max_output_tokens,
        ),
        dead_letters=DeadLetters(producer),
        fallbacks=FallbackAlerts(database),
        metrics=metrics,
        cap=own.backlog_cap,
    )
    deliveries = Deliveries(
        database=database,
        sources=sources,
        secrets=SourceSecrets(Keyring.parse(settings.encryption.keys.get_secret_value()), settings.public_url),
        items=items,
        metrics=metrics,
        attempts=limits.attempts,
    )
    executor = Executor(
        settings.kafka,
        registry,
        group=GROUP,
        topics=(WEBHOOKS_RAW,),
        handling=Handling(
            deliveries.handle,
            deliveries.on_poison,
            dedup_key=deliveries.dedup_key,
            already_done=deliveries.already_done,
        ),
        limits=limits,
    )
    state = StateReporter(database, context, held=lambda: ", ".join(executor.held) or None, lag=lambda: executor.lag)
    return [database, SchemaGate(database), memory, llm, producer, writer, state, executor]
