"""What room-ingest is made of."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW
from room_common.domain.tokens import parse_token_keys
from room_common.postgres.overflow_connection import OverflowConnection
from room_common.service.parts import Context, Part
from room_common.telemetry.tracing import tracer
from room_ingest.cluster import AiokafkaCluster
from room_ingest.drain import Drain
from room_ingest.intake import Intake
from room_ingest.metrics import IngestMetrics
from room_ingest.overflow import Overflow
from room_ingest.rounds import Rounds
from room_ingest.server import Server
from room_ingest.settings import IngestSettings
from room_ingest.traced_intake import TracedIntake


class Collector(Part):
    """Sets Python's garbage collector once all else has started: what is there then lives as long as the process and
    is never looked at again, and requests, which leave no cycles behind, do not make it run every few of them."""

    name = "garbage-collector"

    async def start(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


def compose(context: Context[IngestSettings]) -> Sequence[Part]:
    """The parts in the order they start. The port is open before Kafka answers, and closes before Kafka is let go."""
    settings = context.settings.ingest
    kafka = context.settings.kafka
    metrics = IngestMetrics(context.registry)
    rounds = Rounds(
        AiokafkaCluster(kafka, settings.kafka_request_seconds),
        (WEBHOOKS_RAW, REPLIES_RAW),
        metrics,
        idempotence=kafka.idempotence,
        acknowledge_seconds=settings.acknowledge_seconds,
        request_seconds=settings.kafka_request_seconds,
        alone=context.settings.overflow.dsn is None,
    )
    metrics.problem = rounds.problem
    overflow = _overflow(context, metrics, rounds)
    intake = (TracedIntake if tracer() is not None else Intake)(
        settings,
        parse_token_keys(context.settings.token_keys.get_secret_value()),
        rounds.lanes[WEBHOOKS_RAW],
        rounds.lanes[REPLIES_RAW],
        metrics,
        asyncio.get_running_loop(),
        overflow[0] if overflow else None,
    )
    return [rounds, *overflow, Server(settings, intake, metrics), Collector()]


def _overflow(
    context: Context[IngestSettings], metrics: IngestMetrics, rounds: Rounds
) -> tuple[Overflow, Drain] | tuple[()]:
    """Both sides of the overflow table, each with a connection of its own; nothing where none is given."""
    settings = context.settings.overflow
    if settings.dsn is None:
        return ()
    writing, draining = (
        OverflowConnection(
            settings.dsn, context.instance, connect_seconds=settings.connect_seconds, seconds=settings.write_seconds
        )
        for _ in range(2)
    )
    overflow = Overflow(writing, settings, metrics)
    drain = Drain(
        draining,
        settings,
        overflow,
        rounds.lanes,
        rounds.problem,
        metrics,
        acknowledge_seconds=context.settings.ingest.acknowledge_seconds,
    )
    return overflow, drain
