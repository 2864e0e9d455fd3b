"""What admin is made of."""

from __future__ import annotations

from collections.abc import Sequence

from room_admin.answers import Answers
from room_admin.api import build
from room_admin.apply import Applier, Urls
from room_admin.backtest import Backtest
from room_admin.deliveries import Deliveries
from room_admin.feed import Feed
from room_admin.routes.definitions import Tester
from room_admin.server import ApiServer, Bootstrap
from room_admin.settings import AdminSettings
from room_common.crypto import Keyring
from room_common.domain.tokens import parse_token_keys, token_digest
from room_common.kafka.producer import Producer
from room_common.kafka.reader import Reader
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter


def compose(context: Context[AdminSettings]) -> Sequence[Part]:
    """The parts of admin, in the order in which they start."""
    settings = context.settings
    database = Database(settings.database, application_name="room-admin", registry=context.registry)
    keyring = Keyring.parse(settings.encryption.keys.get_secret_value())
    urls = Urls(keyring, parse_token_keys(settings.token_keys.get_secret_value()), settings.public_url)
    producer = Producer(settings.kafka, context.registry)
    deliveries = Deliveries(database, keyring, Reader(settings.kafka), producer)
    llm = OpenAiLlm(settings.llm, context.registry, concurrency=settings.admin.test_calls)
    backtest = Backtest(deliveries, llm, calls_at_once=settings.admin.test_calls, seconds=settings.admin.test_seconds)
    feed = Feed(database)
    applier = Applier(database, keyring, urls)
    answers = Answers(database, producer)
    token = settings.admin.bootstrap_token
    return [
        database,
        SchemaGate(database),
        llm,
        Bootstrap(database, None if token is None else token_digest(token.get_secret_value())),
        ApiServer(build(database, applier, urls, deliveries, Tester(backtest), feed, answers, keyring), settings.admin),
        feed,  # behind the API: it stops first, which ends the streams that the API would wait for
        StateReporter(database, context),
        producer,  # last: the API needs no Kafka for most of what it does
    ]
