"""What outbound is made of."""

from __future__ import annotations

from collections.abc import Sequence

from room_common.kafka.batches import Batches
from room_common.postgres.migrate import SchemaGate
from room_common.service.state import StateReporter

from room_common.contracts import topics
from room_common.kafka.producer import Producer
from room_common.postgres.database import Database
from room_common.service.parts import Context, Part
from room_outbound.adapters.local import LocalInbox
from room_outbound.delivery import Delivery
from room_outbound.dispatch import Dispatcher
from room_outbound.domain.provider import Provider
from room_outbound.settings import OutboundSettings


def compose(context: Context[OutboundSettings]) -> Sequence[Part]:
    """The parts of outbound, in the order in which they start."""
    settings = context.settings
    database = Database(settings.database, application_name="room-outbound", registry=context.registry)
    producer = Producer(settings.kafka, context.registry)
    providers: dict[str, Provider] = {}
    if settings.outbound.local_inbox_url is not None:
        providers["local"] = LocalInbox(settings.outbound.local_inbox_url)
    delivery = Delivery(
        database,
        producer,
        providers,
        owner=context.instance,
        lease_seconds=settings.outbound.lease_seconds,
        registry=context.registry,
    )
    dispatcher = Dispatcher(
        database,
        delivery,
        concurrency=settings.outbound.concurrency,
        poll_seconds=settings.outbound.poll_seconds,
        registry=context.registry,
    )
    batches = Batches(settings.kafka, context.registry)
    batches.subscribe(topics.OUTBOUND, "outbound", dispatcher.handle)
    return [
        database,
        SchemaGate(database),
        producer,
        dispatcher,
        batches,
        StateReporter(database, context),
    ]
