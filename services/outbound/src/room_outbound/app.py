"""What outbound is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from room_common.contracts import topics
from room_common.crypto import Keyring
from room_common.egress.client import egress_client
from room_common.kafka.batches import Batches
from room_common.kafka.producer import Producer
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter
from room_outbound.adapters.accounts import Accounts
from room_outbound.adapters.local import LocalInbox
from room_outbound.adapters.slack import Slack
from room_outbound.adapters.telegram import Telegram
from room_outbound.adapters.twilio import TwilioWhatsApp
from room_outbound.adapters.webhook import OutboundWebhook
from room_outbound.dead_letters import DeadLetters
from room_outbound.delivery import Delivery
from room_outbound.dispatch import GROUP, Dispatcher
from room_outbound.domain.provider import Provider
from room_outbound.settings import OutboundSettings


def compose(context: Context[OutboundSettings]) -> Sequence[Part]:
    """The parts of outbound, in the order in which they start."""
    settings = context.settings
    database = Database(settings.database, application_name="room-outbound", registry=context.registry)
    producer = Producer(settings.kafka, context.registry)
    providers = Providers(_providers(settings))
    delivery = Delivery(
        database,
        providers.by_channel,
        Accounts(Keyring.parse(settings.encryption.keys.get_secret_value())),
        owner=context.instance,
        lease_seconds=settings.outbound.lease_seconds,
        registry=context.registry,
    )
    dispatcher = Dispatcher(
        database,
        delivery,
        DeadLetters(database, producer, context.registry),
        concurrency=settings.outbound.concurrency,
        poll_seconds=settings.outbound.poll_seconds,
        registry=context.registry,
    )
    batches = Batches(settings.kafka, context.registry)
    batches.subscribe(topics.OUTBOUND, GROUP, dispatcher.handle)
    return [
        database,
        SchemaGate(database),
        producer,
        providers,
        dispatcher,
        batches,
        StateReporter(database, context),
    ]


class Providers(Part):
    """The far ends of all channels; closes their connections at the end."""

    name = "providers"

    def __init__(self, by_channel: Mapping[str, Provider]) -> None:
        self.by_channel = by_channel

    async def stop(self) -> None:
        for provider in self.by_channel.values():
            await provider.close()


def _providers(settings: OutboundSettings) -> Mapping[str, Provider]:
    outbound = settings.outbound
    providers: dict[str, Provider] = {
        "slack": Slack(outbound.slack_url),
        "telegram": Telegram(outbound.telegram_url),
        "whatsapp": TwilioWhatsApp(outbound.twilio_url),
        "webhook": OutboundWebhook(egress_client(settings.egress)),
    }
    if outbound.local_inbox_url is not None:
        providers["local"] = LocalInbox(outbound.local_inbox_url)
    return providers
