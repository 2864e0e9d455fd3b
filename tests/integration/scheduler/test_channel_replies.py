"""Replies on channels with credentials: signatures, contacts, opting out, keys."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest
from multidict import MultiDict
from prometheus_client import CollectorRegistry
from slack_sdk.signature import SignatureVerifier
from twilio.request_validator import RequestValidator

from room_common.contracts.channel_config import make_channel_config
from room_common.crypto import Keyring
from room_common.kafka.producer import Producer, RecordMetadata
from room_common.kafka.records import Record
from room_common.postgres import opt_outs
from room_common.postgres.database import Database
from room_scheduler.channel_secrets import ChannelSecrets
from room_scheduler.inbox import Inbox
from room_scheduler.waiting import WaitingReplies
from room_testing.matching import PUBLIC_URL
from room_testing.scheduling import KEYRING, Scheduling, SeededChannel

pytestmark = pytest.mark.integration

SLACK = make_channel_config(
    "slack", {"bot_token": "xoxb-1", "signing_secret": "slack-secret"}, allow=("U0ADA", "U0BOB")
)
TELEGRAM = make_channel_config("telegram", {"bot_token": "123456:abcdefghijk", "secret_token": "tg-secret"})
WHATSAPP = make_channel_config(
    "whatsapp", {"account_sid": "AC" + "0" * 32, "auth_token": "auth"}, sender="+14155238886"
)


class Dead(Producer):
    """Keeps the kinds of dead letters."""

    def __init__(self) -> None:
        self.kinds: list[bytes] = []

    async def send(self, topic: str, **record: object) -> RecordMetadata:
        if topic == "room.replies.dead":
            headers = record["headers"]
            assert isinstance(headers, tuple)
            self.kinds.append(dict(headers)["error"])
        return RecordMetadata(topic, 0, 0, 0)


@pytest.fixture
def dead() -> Dead:
    return Dead()


@pytest.fixture
def inbox(database: Database, dead: Dead) -> Inbox:
    return make(database, dead, KEYRING)


def make(database: Database, producer: Producer, keyring: Keyring) -> Inbox:
    secrets = ChannelSecrets(keyring, PUBLIC_URL)
    return Inbox(database, producer, secrets, CollectorRegistry(), debounce_seconds=2.0)


def slack(world: Scheduling, seeded_channel: SeededChannel, *, event_id: str = "Ev1", **event: str) -> Record:
    message = {"type": "message", "user": "U0ADA", "channel": "D1", "channel_type": "im", "text": "hi"} | event
    body = json.dumps({"type": "event_callback", "event_id": event_id, "event": message}).encode()
    now = str(int(time.time()))
    signature = SignatureVerifier("slack-secret").generate_signature(timestamp=now, body=body)
    return world.reply_record(
        seeded_channel, body, http={"x-slack-signature": str(signature), "x-slack-request-timestamp": now}
    )


def whatsapp(world: Scheduling, channel: SeededChannel, text: str, sid: str, sender: str = "+390612345678") -> Record:
    form = [("MessageSid", sid), ("From", f"whatsapp:{sender}"), ("Body", text), ("NumMedia", "0")]
    signature = RequestValidator("auth").compute_signature(channel.uri, MultiDict(form))
    return world.reply_record(
        channel,
        urlencode(form).encode(),
        http={"x-twilio-signature": signature},
        content_type="application/x-www-form-urlencoded",
    )


async def fates(world: Scheduling, channel: SeededChannel) -> list[tuple[str, str | None]]:
    return [(row["text"], row["reason"]) for row in await world.inbox(channel.room)]


async def seeded(world: Scheduling, kind: str, config: object, target: str) -> SeededChannel:
    room = await world.room(channel=kind)
    await world.query("update instance_room set outbound_target = %s where instance_id = %s", target, room.instance_id)
    assert config is not None
    return await world.channel(room, kind, config=config)  # type: ignore[arg-type]


async def test_slack(inbox: Inbox, dead: Dead, rooms_only: Scheduling) -> None:
    channel = await seeded(rooms_only, "slack", SLACK, "U0ADA")
    good = slack(rooms_only, channel)
    forged = Record(good.topic, 0, 0, 0, good.key, (good.value or b"") + b" ", good.headers)
    await inbox.handle(
        [
            good,
            good,
            slack(rooms_only, channel, text="retried under another record"),
            slack(rooms_only, channel, event_id="Ev2", user="U0BOB"),
            slack(rooms_only, channel, event_id="Ev3", bot_id="B1"),
            forged,
        ]
    )
    assert await fates(rooms_only, channel) == [("hi", None), ("hi", "wrong_contact")]
    assert dead.kinds == [b"bad_signature"]


async def test_slack_in_a_channel_asks_who_may_answer(inbox: Inbox, rooms_only: Scheduling) -> None:
    channel = await seeded(rooms_only, "slack", SLACK, "C0OPS")
    for number, user in enumerate(("U0BOB", "U0EVE")):
        message = {"channel": "C0OPS", "channel_type": "channel", "user": user, "text": user}
        await inbox.handle([slack(rooms_only, channel, event_id=f"Ev{number}", **message)])
    assert await fates(rooms_only, channel) == [("U0BOB", None), ("U0EVE", "not_allowed")]


async def test_telegram(inbox: Inbox, dead: Dead, rooms_only: Scheduling) -> None:
    channel = await seeded(rooms_only, "telegram", TELEGRAM, "42")
    message = {"message_id": 1, "from": {"id": 42}, "chat": {"id": 42, "type": "private"}, "text": "hi"}

    def record(secret: str) -> Record:
        http: Mapping[str, str] = {
            "x-telegram-bot-api-secret-token": f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"
        }
        return rooms_only.reply_record(channel, {"update_id": 5, "message": message}, http=http)

    await inbox.handle([record("tg-secret"), record("tg-secret"), record("other")])
    assert await fates(rooms_only, channel) == [("hi", None)]
    assert dead.kinds == [b"bad_signature"]


async def test_whatsapp_and_its_words(inbox: Inbox, dead: Dead, database: Database, rooms_only: Scheduling) -> None:
    channel = await seeded(rooms_only, "whatsapp", WHATSAPP, "whatsapp:+39 06 12345678")
    stop = whatsapp(rooms_only, channel, "Stop", "SM2")
    await inbox.handle([whatsapp(rooms_only, channel, "hi", "SM1"), stop])
    async with database.transaction() as conn:
        assert await opt_outs.holds(conn, channel.id, "+390612345678")
    await inbox.handle(
        [
            whatsapp(rooms_only, channel, "still here", "SM3"),
            whatsapp(rooms_only, channel, "START", "SM4"),
            stop,
            whatsapp(rooms_only, channel, "again", "SM5"),
            whatsapp(rooms_only, channel, "who is this", "SM6", sender="+390600000000"),
        ]
    )
    assert await fates(rooms_only, channel) == [
        ("hi", None),
        ("Stop", "opted_out"),
        ("still here", "opted_out"),
        ("START", None),
        ("again", None),
        ("who is this", "wrong_contact"),
    ]
    assert dead.kinds == []


async def test_a_stop_counts_even_where_the_room_is_off(
    inbox: Inbox, database: Database, rooms_only: Scheduling
) -> None:
    channel = await seeded(rooms_only, "whatsapp", WHATSAPP, "+390612345678")
    await rooms_only.query("update instance_room set enabled = false")
    await inbox.handle([whatsapp(rooms_only, channel, "STOP", "SM1")])
    assert await fates(rooms_only, channel) == [("STOP", "disabled")]
    async with database.transaction() as conn:
        assert await opt_outs.holds(conn, channel.id, "+390612345678")


async def test_a_config_that_was_tampered_with_is_never_open(inbox: Inbox, dead: Dead, rooms_only: Scheduling) -> None:
    channel = await seeded(rooms_only, "slack", SLACK, "U0ADA")
    other = await seeded(rooms_only, "slack", SLACK, "U0ADA")
    await rooms_only.query(
        "update instance_channels set config = (select config from instance_channels where id = %s) where id = %s",
        other.id,
        channel.id,
    )
    await inbox.handle([slack(rooms_only, channel)])
    await rooms_only.query("update instance_channels set config = null where id = %s", channel.id)
    await inbox.handle([slack(rooms_only, channel, event_id="Ev2")])
    assert dead.kinds == [b"config_unreadable", b"channel_not_configured"]
    assert await rooms_only.inbox(channel.room) == []


async def test_a_missing_key_is_waited_for_and_holds_up_nobody_else(
    database: Database, dead: Dead, rooms_only: Scheduling
) -> None:
    sealed = await seeded(rooms_only, "slack", SLACK, "U0ADA")
    open_room = await rooms_only.room()
    local = await rooms_only.channel(open_room)
    registry = CollectorRegistry()
    without = make(database, dead, Keyring.parse("other:" + "33" * 32))
    record = slack(rooms_only, sealed)
    await without.handle([record, rooms_only.reply_record(local, {"sender": "Me", "text": "Hello."})])
    await without.handle([record])
    assert [row["status"] for row in await rooms_only.inbox(open_room)] == ["unread"]
    assert dead.kinds == [] and await rooms_only.inbox(sealed.room) == []

    await rooms_only.query("update replies_waiting set next_try_at = now() returning id")
    await WaitingReplies(database, without, registry).look()
    assert registry.get_sample_value("room_replies_waiting") == 1

    await rooms_only.query("update replies_waiting set next_try_at = now() returning id")
    waiting = WaitingReplies(database, make(database, dead, KEYRING), registry)
    await waiting.look()
    assert [row["text"] for row in await rooms_only.inbox(sealed.room)] == ["hi"]
    assert registry.get_sample_value("room_replies_waiting") == 0
