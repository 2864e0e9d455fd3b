"""What the scheduler is made of."""

from __future__ import annotations

from collections.abc import Sequence

from room_common.contracts import topics
from room_common.crypto import Keyring
from room_common.kafka.batches import Batches
from room_common.kafka.producer import Producer
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter
from room_scheduler.channel_secrets import ChannelSecrets
from room_scheduler.inbox import Inbox
from room_scheduler.settings import SchedulerSettings
from room_scheduler.ticker import Ticker
from room_scheduler.waiting import WaitingReplies


def compose(context: Context[SchedulerSettings]) -> Sequence[Part]:
    """The parts of the scheduler, in the order in which they start."""
    settings = context.settings
    database = Database(settings.database, application_name="room-scheduler", registry=context.registry)
    producer = Producer(settings.kafka, context.registry)
    secrets = ChannelSecrets(Keyring.parse(settings.encryption.keys.get_secret_value()), settings.public_url)
    debounce = settings.scheduler.reply_debounce_seconds
    inbox = Inbox(database, producer, secrets, context.registry, debounce_seconds=debounce)
    batches = Batches(settings.kafka, context.registry)
    batches.subscribe(topics.REPLIES_RAW, topics.SCHEDULER_GROUP, inbox.handle)
    return [
        database,
        SchemaGate(database),
        producer,
        Ticker(database, producer, settings.scheduler, context.registry),
        WaitingReplies(database, inbox, context.registry),
        batches,
        StateReporter(database, context),
    ]
