"""Replies into the inbox: fates, duplicates, waking, and what is no reply."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable
from room_common.kafka.producer import Producer, RecordMetadata
from room_common.kafka.records import Record
from room_common.postgres import replies
from room_common.postgres.database import Database
from room_scheduler.channel_secrets import ChannelSecrets
from room_scheduler.inbox import Inbox
from room_testing.matching import PUBLIC_URL
from room_testing.scheduling import KEYRING, Scheduling

pytestmark = pytest.mark.integration


class MemoryProducer(Producer):
    """Keeps what it is given; ``away`` makes it refuse."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.away = False

    async def send(self, topic: str, **record: Any) -> RecordMetadata:
        if self.away:
            raise DependencyUnavailable("kafka", "timeout")
        self.sent.append((topic, record))
        return RecordMetadata(topic, 0, 0, 0)

    def topics(self) -> list[str]:
        return [topic for topic, _ in self.sent]

    def errors(self) -> list[bytes]:
        return [dict(record["headers"])["error"] for topic, record in self.sent if topic == "room.replies.dead"]


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def inbox(database: Database, producer: MemoryProducer, registry: CollectorRegistry) -> Inbox:
    return Inbox(database, producer, ChannelSecrets(KEYRING, PUBLIC_URL), registry, debounce_seconds=2.0)


HELLO = {"sender": "Me", "text": "Hello."}


async def test_a_reply_wakes_its_room_after_a_moment(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await inbox.handle([rooms_only.reply_record(channel, HELLO)])
    (row,) = await rooms_only.inbox(room)
    assert (row["status"], row["sender"], row["text"]) == ("unread", "Me", "Hello.")
    wait = await rooms_only.wait_until_wake(room)
    assert wait is not None and -5 < wait <= 2
    (tick,) = producer.sent
    assert tick[0] == "room.ticks" and b'"reason":"reply"' in tick[1]["value"]
    assert await rooms_only.activity(room) == ["reply_received"]


async def test_further_replies_do_not_move_the_first_ones_time(inbox: Inbox, rooms_only: Scheduling) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await inbox.handle([rooms_only.reply_record(channel, HELLO)])
    before = (await rooms_only.state(room))["wake_at"]
    await inbox.handle([rooms_only.reply_record(channel, HELLO) for _ in range(3)])
    assert (await rooms_only.state(room))["wake_at"] == before
    assert len(await rooms_only.inbox(room)) == 4
    later = datetime.now(UTC) + timedelta(hours=1)
    await rooms_only.query("update instance_room set wake_at = %s", later)
    await inbox.handle([rooms_only.reply_record(channel, HELLO)])
    assert (await rooms_only.state(room))["wake_at"] < later, "a later time is brought forward"


async def test_a_reply_during_a_cycle_waits_in_the_inbox(inbox: Inbox, rooms_only: Scheduling) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await rooms_only.query("update instance_room set lease_owner = 'w', lease_until = now() + interval '1 minute'")
    await inbox.handle([rooms_only.reply_record(channel, HELLO)])
    state = await rooms_only.state(room)
    assert state["wake_at"] is not None and state["lease_owner"] == "w"


async def test_a_batch_that_comes_again_changes_nothing(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    batch = [
        rooms_only.reply_record(channel, HELLO),
        rooms_only.reply_record(channel, {**HELLO, "id": "m1"}),
        rooms_only.reply_record(channel, {**HELLO, "id": "m1"}),
    ]
    await inbox.handle(batch)
    rows = await rooms_only.inbox(room)
    assert len(rows) == 2, "a sender's own id is one reply, however often it is posted"
    await inbox.handle(batch)
    assert await rooms_only.inbox(room) == rows
    assert len(producer.sent) == 2


async def test_a_reply_is_kept_when_its_tick_can_not_be_sent(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    record = rooms_only.reply_record(channel, HELLO)
    producer.away = True
    with pytest.raises(DependencyUnavailable):
        await inbox.handle([record])
    assert len(await rooms_only.inbox(room)) == 1 and await rooms_only.wait_until_wake(room) is not None
    producer.away = False
    await inbox.handle([record])
    assert len(await rooms_only.inbox(room)) == 1


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ("update instance_room set enabled = false", "disabled"),
        ("update instances set status = 'paused'", "disabled"),
        ("update instance_channels set enabled = false", "disabled"),
        ("update instances set deleted_at = now()", "no_room"),
        ("delete from instance_room", "no_room"),
        ("update instance_room set outbound_target = 'somebody'", "wrong_contact"),
        ("update instance_room set outbound_channel = 'slack'", "wrong_contact"),
        ("update instance_room set outbound_channel = null, outbound_target = null", "wrong_contact"),
    ],
)
async def test_what_the_room_does_not_take_is_a_row_that_says_why(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling, setup: str, reason: str
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await rooms_only.query(setup)
    await inbox.handle([rooms_only.reply_record(channel, HELLO)])
    (row,) = await rooms_only.inbox(room)
    assert (row["status"], row["reason"]) == ("ignored", reason)
    assert producer.sent == []
    if reason != "no_room":
        assert await rooms_only.wait_until_wake(room) is None


async def test_tokens_count_by_the_time_of_receipt(inbox: Inbox, rooms_only: Scheduling) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await rooms_only.query("update source_tokens set valid_until = now() - interval '1 minute'")
    await inbox.handle(
        [
            rooms_only.reply_record(channel, {**HELLO, "text": "after"}),
            rooms_only.reply_record(channel, {**HELLO, "text": "before"}, age=120),
        ]
    )
    assert [row["text"] for row in await rooms_only.inbox(room)] == ["before"]


async def test_what_is_no_reply_is_dead_lettered_and_holds_up_nothing(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling, registry: CollectorRegistry
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    await inbox.handle(
        [
            rooms_only.reply_record(hashlib.sha256(b"nobody").digest(), HELLO),
            rooms_only.reply_record(channel, b"", outcome="too_large"),
            rooms_only.reply_record(channel, b"\xff"),
            rooms_only.reply_record(channel, {"sender": "Me"}),
            rooms_only.reply_record(channel, {"text": "Hello."}),
            Record("room.replies.raw", 0, 9, 0, None, b"x", (("id", b"\xff"),)),
            rooms_only.reply_record(channel, {**HELLO, "text": "nul \x00 and 🙂"}),
        ]
    )
    assert producer.errors() == [b"too_large", b"undecodable", b"no_text", b"no_sender", b"bad_envelope"]
    for reason in ("too_large", "undecodable", "no_text", "no_sender", "bad_envelope"):
        counted = {"topic": "room.replies.dead", "reason": reason}
        assert registry.get_sample_value("room_dead_letters_total", counted) == 1
    assert dict(producer.sent[0][1]["headers"])["origin"] == b"room.replies.raw/0/0"
    (row,) = await rooms_only.inbox(room)
    assert row["text"] == "nul � and 🙂"


async def test_an_unforeseen_failure_parks_the_reply_and_goes_on(
    inbox: Inbox, producer: MemoryProducer, rooms_only: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await rooms_only.room()
    channel = await rooms_only.channel(room)
    put, tries = replies.put, []

    async def failing(*arguments: Any, **fields: Any) -> bool:
        tries.append(fields["text"])
        if fields["text"] == "bad" or len(tries) == 1:
            raise RuntimeError
        return await put(*arguments, **fields)

    monkeypatch.setattr(replies, "put", failing)
    await inbox.handle([rooms_only.reply_record(channel, {**HELLO, "text": text}) for text in ("once", "bad", "good")])
    assert tries == ["once", "once", "bad", "bad", "bad", "good"]
    assert producer.errors() == [b"unforeseen"]
    assert [row["text"] for row in await rooms_only.inbox(room)] == ["once", "good"]
