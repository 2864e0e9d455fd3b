"""What room-ingest is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW
from room_common.domain.tokens import parse_token_keys
from room_common.service.parts import Context, Part
from room_ingest.cluster import AiokafkaCluster
from room_ingest.intake import Intake
from room_ingest.metrics import IngestMetrics
from room_ingest.rounds import Rounds
from room_ingest.server import Server
from room_ingest.settings import IngestSettings


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
    )
    intake = Intake(
        settings,
        parse_token_keys(context.settings.token_keys.get_secret_value()),
        rounds.lanes[WEBHOOKS_RAW],
        rounds.lanes[REPLIES_RAW],
        metrics,
        asyncio.get_running_loop(),
    )
    return [rounds, Server(settings, intake, metrics)]
