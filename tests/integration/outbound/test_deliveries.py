"""One delivery after the other against an inbox that fails in every way: what becomes of the row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from room_common.contracts.channel_config import ChannelConfig, make_channel_config
from room_common.crypto import Keyring
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.producer import Outgoing, Producer, RecordMetadata
from room_common.postgres import opt_outs, sending
from room_common.postgres.database import Connection, Database
from room_common.telemetry.tracing import trace_with
from room_outbound.adapters.accounts import Accounts
from room_outbound.adapters.local import LocalInbox
from room_outbound.adapters.slack import Slack
from room_outbound.adapters.twilio import TwilioWhatsApp
from room_outbound.dead_letters import DeadLetters
from room_outbound.delivery import Delivery
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter
from room_outbound.domain.retry import DELAYS, MAX_ATTEMPTS
from room_testing.fake_peer import (
    GARBAGE,
    HANG,
    HANG_AFTER_ACCEPTING,
    RESET,
    RESET_AFTER_ACCEPTING,
    FakeInbox,
    Fault,
)
from room_testing.fake_providers import ACCOUNT_SID, AUTH_TOKEN, SLACK_TOKEN, FakeSlack, FakeTwilio
from room_testing.matching import ENCRYPTION_KEYS
from room_testing.sending_world import Sending

pytestmark = pytest.mark.integration

AGAIN: dict[str, tuple[Fault, str]] = {
    "too many": (Fault(429), "rate_limit"),
    "too many, come back": (Fault(429, {"Retry-After": "90"}), "rate_limit"),
    "too many, nonsense": (Fault(429, {"Retry-After": "soon"}), "rate_limit"),
    "error": (Fault(500), "http_500"),
    "error after accepting": (Fault(502, accepted=True), "http_502"),
    "hang": (HANG, "timeout"),
    "hang after accepting": (HANG_AFTER_ACCEPTING, "timeout"),
    "reset": (RESET, "reset"),
    "reset after accepting": (RESET_AFTER_ACCEPTING, "reset"),
    "garbage": (GARBAGE, "bad_answer"),
}


class MemoryProducer(Producer):
    """Keeps what it is given; ``away`` makes it refuse."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, bytes]]] = []
        self.away = False

    async def send_many(
        self, records: Sequence[Outgoing], *, timeout: float | None = None
    ) -> list[RecordMetadata | DependencyUnavailable | DeadLetter]:
        if self.away:
            return [DependencyUnavailable("kafka", "timeout") for _ in records]
        self.sent += [(record.topic, dict(record.headers)) for record in records]
        return [RecordMetadata(record.topic, 0, 0, 0) for record in records]


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
def letters(database: Database, producer: MemoryProducer) -> DeadLetters:
    return DeadLetters(database, producer, CollectorRegistry())


@pytest.fixture
async def local(inbox: FakeInbox) -> AsyncIterator[LocalInbox]:
    provider = LocalInbox(inbox.url, httpx.AsyncClient(timeout=1.0, trust_env=False))
    yield provider
    await provider.close()


@pytest.fixture
def delivery(database: Database, local: LocalInbox) -> Delivery:
    return make(database, {"local": local})


def make(
    database: Database,
    providers: dict[str, Any],
    lease: float = 60.0,
    accounts: Accounts | None = None,
) -> Delivery:
    return Delivery(
        database,
        providers,
        accounts or Accounts(Keyring.parse(ENCRYPTION_KEYS)),
        owner="outbound-test",
        lease_seconds=lease,
        registry=CollectorRegistry(),
        jitter=lambda: 0.0,
    )


async def wait_of(world: Sending, message: Any) -> float:
    """Seconds until the next try."""
    (row,) = await world.query(
        "select extract(epoch from next_attempt_at - now())::float8 as wait from outbound_messages where id = %s",
        message,
    )
    return float(row["wait"])


async def test_a_message_is_sent_and_makes_way(delivery: Delivery, inbox: FakeInbox, rows_only: Sending) -> None:
    room = await rows_only.room()
    first, second = await rows_only.message(room, "One."), await rows_only.message(room, "Two.", status="queued")
    assert await delivery.deliver(second) is None
    assert await delivery.deliver(first) == second
    assert await delivery.deliver(second) is None
    assert await delivery.deliver(second) is None
    assert [message["text"] for message in inbox.accepted] == ["One.", "Two."]
    row = await rows_only.row(first)
    assert (row["status"], row["provider_message_id"], row["attempts"]) == ("sent", f"m-{first}", 1)
    assert inbox.calls[0].headers["Idempotency-Key"] == str(first)


@pytest.mark.parametrize("name", AGAIN)
async def test_what_may_succeed_later_is_tried_again(
    delivery: Delivery, inbox: FakeInbox, rows_only: Sending, name: str
) -> None:
    fault, kind = AGAIN[name]
    room = await rows_only.room()
    message, following = await rows_only.message(room), await rows_only.message(room)
    inbox.faults.append(fault)
    assert await delivery.deliver(message) is None
    row = await rows_only.row(message)
    assert (row["status"], row["error"], row["attempts"]) == ("published", kind, 1)
    expected = 90 if "Retry-After" in fault.headers and fault.headers["Retry-After"].isdecimal() else DELAYS[0]
    assert expected - 10 < await wait_of(rows_only, message) <= expected
    assert await delivery.deliver(message) is None, "not yet"
    await rows_only.hurry(message)
    assert await delivery.deliver(message) == following
    assert (await rows_only.row(message))["status"] == "sent"
    assert len(inbox.accepted) == (2 if fault.accepted else 1), "a duplicate only where the first was accepted"


@pytest.mark.parametrize("name", AGAIN)
async def test_a_channel_that_wants_nothing_twice_gets_nothing_twice(
    delivery: Delivery, inbox: FakeInbox, rows_only: Sending, name: str
) -> None:
    fault, kind = AGAIN[name]
    room = await rows_only.room()
    await rows_only.once_only(room)
    message, following = await rows_only.message(room), await rows_only.message(room)
    inbox.faults.append(fault)
    safe = kind == "rate_limit"
    assert await delivery.deliver(message) == (None if safe else following)
    row = await rows_only.row(message)
    assert (row["status"], row["error"]) == ("published" if safe else "unknown", kind)
    await rows_only.hurry(message)
    await delivery.deliver(message)
    assert len(inbox.accepted) == int(safe or fault.accepted)
    assert (await rows_only.activity(room)) == (["message_sent"] if safe else ["message_failed"])


async def test_nobody_listening_is_safe_to_try_again(database: Database, rows_only: Sending) -> None:
    provider = LocalInbox("http://127.0.0.1:9", httpx.AsyncClient(timeout=1.0, trust_env=False))
    room = await rows_only.room()
    await rows_only.once_only(room)
    message = await rows_only.message(room)
    await make(database, {"local": provider}).deliver(message)
    row = await rows_only.row(message)
    assert (row["status"], row["error"]) == ("published", "connect")
    await provider.close()


@pytest.mark.parametrize("status", [400, 401, 404, 413, 302])
async def test_a_refusal_is_final_shown_and_dead_lettered(
    delivery: Delivery,
    letters: DeadLetters,
    inbox: FakeInbox,
    producer: MemoryProducer,
    rows_only: Sending,
    status: int,
) -> None:
    room = await rows_only.room()
    message, following = await rows_only.message(room), await rows_only.message(room)
    inbox.faults.append(Fault(status))
    assert await delivery.deliver(message) == following
    row = await rows_only.row(message)
    assert (row["status"], row["error"], row["attempts"]) == ("failed", f"http_{status}", 1)
    assert (await letters.write(), await letters.write()) == (1, 0)
    assert producer.sent == [("room.outbound.dead", {"error": f"http_{status}".encode(), "attempts": b"1"})]
    assert await rows_only.activity(room) == ["message_failed"]
    assert await delivery.deliver(message) is None and len(inbox.calls) == 1


async def test_the_eighth_try_is_the_last(
    delivery: Delivery, letters: DeadLetters, inbox: FakeInbox, producer: MemoryProducer, rows_only: Sending
) -> None:
    message = await rows_only.message(await rows_only.room())
    for number in range(MAX_ATTEMPTS):
        inbox.faults.append(Fault(503))
        await rows_only.hurry(message)
        await delivery.deliver(message)
        if number < MAX_ATTEMPTS - 1:
            assert DELAYS[number] - 10 < await wait_of(rows_only, message) <= DELAYS[number]
    row = await rows_only.row(message)
    assert (row["status"], row["error"], row["attempts"]) == ("failed", "http_503", 8)
    await letters.write()
    assert [headers["attempts"] for _, headers in producer.sent] == [b"8"]


async def test_a_message_keeps_its_trace_for_a_later_attempt_and_in_its_dead_letter(
    database: Database, delivery: Delivery, inbox: FakeInbox, producer: MemoryProducer, rows_only: Sending
) -> None:
    message = await rows_only.message(await rows_only.room())
    wrote, woke = (f"00-{'a' * 32}-{digit * 16}-01" for digit in "12")
    await rows_only.query("update outbound_messages set traceparent = %s returning id", wrote)
    inbox.faults += [Fault(503), Fault(400)]
    exporter = InMemorySpanExporter()
    end_tracing = trace_with("test", "test-1", SimpleSpanProcessor(exporter), {})
    try:
        await delivery.deliver(message, woke)
        await rows_only.hurry(message)
        await delivery.deliver(message)
    finally:
        end_tracing()
    attempts = [span for span in exporter.get_finished_spans() if span.name == "deliver message"]
    assert [trace.format_span_id(span.parent.span_id) for span in attempts if span.parent] == ["2" * 16, "1" * 16]
    posts = [span for span in exporter.get_finished_spans() if span.name == "POST"]
    assert [dict(span.attributes or {})["error.type"] for span in posts] == ["503", "400"]
    registry = CollectorRegistry()
    assert await DeadLetters(database, producer, registry).write() == 1
    assert [headers["traceparent"] for _, headers in producer.sent] == [wrote.encode()]
    counted = {"topic": "room.outbound.dead", "reason": "failed"}
    assert registry.get_sample_value("room_dead_letters_total", counted) == 1


@pytest.mark.parametrize("channel", ["at_least_once", "at_most_once"])
async def test_a_refusal_stays_one_while_kafka_is_away(
    delivery: Delivery,
    letters: DeadLetters,
    inbox: FakeInbox,
    producer: MemoryProducer,
    rows_only: Sending,
    channel: str,
) -> None:
    room = await rows_only.room()
    message, following = await rows_only.message(room), await rows_only.message(room)
    await rows_only.query("update instance_channels set delivery = %s returning id", channel)
    inbox.faults.append(Fault(400))
    producer.away = True
    assert await delivery.deliver(message) == following
    assert (await rows_only.row(message))["status"] == "failed"
    assert await letters.write() == 0
    producer.away = False
    assert (await letters.write(), await letters.write()) == (1, 0)
    assert len(producer.sent) == 1 and len(inbox.calls) == 1


async def test_a_channel_without_a_provider_fails(database: Database, rows_only: Sending) -> None:
    message = await rows_only.message(await rows_only.room())
    await make(database, {}).deliver(message)
    row = await rows_only.row(message)
    assert (row["status"], row["error"]) == ("failed", "channel_not_configured")


class Scripted:
    """A provider in memory that takes ten characters at once. ``before`` runs ahead of each acceptance."""

    longest: int | None = 10
    pace: Pace | None = None

    def __init__(self, script: Sequence[BaseException | None] = ()) -> None:
        self.script = list(script)
        self.letters: list[Letter] = []

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        step = self.script.pop(0) if self.script else None
        if step is not None:
            raise step
        self.letters.append(letter)
        return f"p{letter.part}"

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_long_text_goes_in_parts_and_a_resend_continues(database: Database, rows_only: Sending) -> None:
    room = await rows_only.room()
    message, following = await rows_only.message(room, "aaaaaaaaaabbbbbbbbbbcc"), await rows_only.message(room, "next")
    provider = Scripted([None, DependencyUnavailable("provider", "timeout")])
    delivery = make(database, {"local": provider})
    assert await delivery.deliver(message) is None
    row = await rows_only.row(message)
    assert (row["status"], row["parts_sent"]) == ("published", 1)
    assert await delivery.deliver(following) is None
    await rows_only.hurry(message)
    assert await delivery.deliver(message) == following
    assert [letter.text for letter in provider.letters] == ["aaaaaaaaaa", "bbbbbbbbbb", "cc"]
    assert [letter.key for letter in provider.letters] == [str(message), f"{message}-1", f"{message}-2"]
    assert (await rows_only.row(message))["provider_message_id"] == "p2"


async def test_nothing_more_is_sent_once_another_process_has_the_row(database: Database, rows_only: Sending) -> None:
    message = await rows_only.message(await rows_only.room(), "aaaaaaaaaabbbbbbbbbb")
    provider = Scripted()
    other = make(database, {"local": Scripted()})

    async def overtaken(letter: Letter, config: ChannelConfig) -> str:
        await rows_only.cut_off(message)
        await other.deliver(message)
        return await Scripted.send(provider, letter, config)

    provider.send = overtaken  # type: ignore[method-assign]
    await make(database, {"local": provider}).deliver(message)
    assert len(provider.letters) == 1
    assert (await rows_only.row(message))["status"] == "sent"


SLACK = make_channel_config("slack", {"bot_token": SLACK_TOKEN, "signing_secret": "s"})
WHATSAPP = make_channel_config(
    "whatsapp", {"account_sid": ACCOUNT_SID, "auth_token": AUTH_TOKEN}, sender="+14155238886"
)


async def test_a_pause_that_the_provider_wants_holds_for_all_that_use_the_account(
    database: Database, rows_only: Sending
) -> None:
    async with FakeSlack() as slack:
        provider = Slack(slack.url)
        delivery = make(database, {"slack": provider})
        messages = []
        for _ in range(2):
            room = await rows_only.room()
            await rows_only.channel(room, SLACK)
            messages.append(await rows_only.message(room, channel="slack", target="C0OPS"))
        slack.faults.append(Fault(429, {"Retry-After": "120"}))
        for message in messages:
            assert await delivery.deliver(message) is None
        refused, waiting = [await rows_only.row(message) for message in messages]
        assert (refused["attempts"], refused["error"]) == (1, "rate_limit")
        assert (waiting["status"], waiting["attempts"], waiting["error"]) == ("published", 0, "rate_limit")
        assert 100 < await wait_of(rows_only, messages[1]) <= 120
        assert len(slack.calls) == 1
        await provider.close()


async def test_faster_than_the_pace_waits_without_spending_a_try(database: Database, rows_only: Sending) -> None:
    provider = Scripted()
    provider.longest, provider.pace = None, Pace(rate=0.01, burst=2.0)
    delivery = make(database, {"local": provider})
    room = await rows_only.room()
    messages = [await rows_only.message(room, target=f"t{number}") for number in range(4)]
    for message in messages:
        await delivery.deliver(message)
    rows = [await rows_only.row(message) for message in messages]
    assert [row["status"] for row in rows] == ["sent", "sent", "published", "published"]
    assert [row["attempts"] for row in rows] == [1, 1, 0, 0]
    assert await wait_of(rows_only, messages[3]) > 60


async def test_nothing_is_sent_to_somebody_who_opted_out(database: Database, rows_only: Sending) -> None:
    async with FakeTwilio() as twilio:
        provider = TwilioWhatsApp(twilio.url)
        delivery = make(database, {"whatsapp": provider})
        room = await rows_only.room()
        channel = await rows_only.channel(room, WHATSAPP)
        target = "whatsapp:+39 06 12345678"
        async with database.transaction() as conn:
            await opt_outs.put(conn, channel, "+390612345678")
        message = await rows_only.message(room, channel="whatsapp", target=target)
        await delivery.deliver(message)
        row = await rows_only.row(message)
        assert (row["status"], row["error"], twilio.calls) == ("failed", "opted_out", [])
        async with database.transaction() as conn:
            await opt_outs.drop(conn, channel, "+390612345678")
            assert await sending.resend(conn, message) == room.instance_id
        await delivery.deliver(message)
        assert (await rows_only.row(message))["status"] == "sent"
        await provider.close()


async def test_credentials_that_can_not_be_read(database: Database, rows_only: Sending) -> None:
    async with FakeSlack() as slack:
        provider = Slack(slack.url)
        room = await rows_only.room()
        channel = await rows_only.channel(room, SLACK)
        first, second = [await rows_only.message(room, channel="slack", target=name) for name in ("C0OPS", "C1")]
        foreign = Accounts(Keyring.parse("other:" + "33" * 32))
        await make(database, {"slack": provider}, accounts=foreign).deliver(first)
        row = await rows_only.row(first)
        assert (row["status"], row["attempts"], row["error"]) == ("published", 0, "unknown_key"), "waits for the key"
        await rows_only.query("update instance_channels set config = config || '\\x00' where id = %s", channel)
        await make(database, {"slack": provider}).deliver(second)
        row = await rows_only.row(second)
        assert (row["status"], row["error"]) == ("failed", "config_unreadable")
        assert slack.calls == []
        await provider.close()


async def test_an_unforeseen_failure_is_a_try_and_no_crash(database: Database, rows_only: Sending) -> None:
    message = await rows_only.message(await rows_only.room())
    delivery = make(database, {"local": Scripted([RuntimeError("with a secret")])})
    await delivery.deliver(message)
    row = await rows_only.row(message)
    assert (row["status"], row["error"]) == ("published", "RuntimeError")


async def test_a_database_that_is_away_after_the_call_is_waited_for(database: Database, rows_only: Sending) -> None:
    """Unrecorded, the message would be sent again once the lease is over."""
    message = await rows_only.message(await rows_only.room())
    provider = Scripted()
    failures = 3

    class Shaky(Database):
        def __init__(self) -> None:
            """Uses the other's pool."""

        @asynccontextmanager
        async def transaction(self, timeout: float | None = None) -> AsyncIterator[Connection]:
            nonlocal failures
            if provider.letters and failures:
                failures -= 1
                raise DependencyUnavailable("postgresql", "connect")
            async with database.transaction() as conn:
                yield conn

    await make(Shaky(), {"local": provider}).deliver(message)
    assert failures == 0
    assert (await rows_only.row(message))["status"] == "sent"


async def test_a_provider_that_hangs_is_cut_off_before_the_lease_ends(database: Database, rows_only: Sending) -> None:
    message = await rows_only.message(await rows_only.room())

    class Hanging(Scripted):
        async def send(self, letter: Letter, config: ChannelConfig) -> str:
            await asyncio.sleep(3600)
            return ""

    start = time.monotonic()
    await make(database, {"local": Hanging()}, lease=2.0).deliver(message)
    row = await rows_only.row(message)
    assert (row["status"], row["error"], row["attempts"]) == ("published", "timeout", 1)
    assert time.monotonic() - start < 60
