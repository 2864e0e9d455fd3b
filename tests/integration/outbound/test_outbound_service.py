"""outbound as a real process: records and rows in, messages in the inbox."""

from __future__ import annotations

import asyncio

import pytest

from room_common.contracts.channel_config import make_channel_config
from room_common.contracts.topics import OUTBOUND
from room_testing.fake_peer import HANG, FakeInbox, Fault
from room_testing.fake_providers import SLACK_TOKEN, FakeSlack
from room_testing.matching import eventually
from room_testing.plugin import StartService
from room_testing.sending_world import Sending

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_records_wake_rows_decide(world: Sending, inbox: FakeInbox, start_service: StartService) -> None:
    """Records in any order, doubled, unreadable, late or missing: each message arrives once, in order."""
    room = await world.room()
    done = await world.message(room, "before", status="sent")
    messages = [await world.message(room, f"{n}", status="queued" if n == 0 else "published") for n in range(5)]
    other = await world.message(room, "elsewhere", target="you")
    inbox.faults.append(Fault(503))
    # Looking so rarely that only records can be what wakes it.
    await asyncio.to_thread(
        start_service, "room_outbound", world.outbound_environment(inbox.url, ROOM_OUTBOUND__POLL_SECONDS="2")
    )
    assert world._producer is not None
    records = [await world.record(message) for message in (messages[3], messages[1], messages[0], done, messages[0])]
    await world._producer.send_and_wait(OUTBOUND, b"{not json", key=b"x")
    for record in records:
        await world._producer.send_and_wait(OUTBOUND, record.encode(), key=b"x")
    await world.becomes(other, "sent")

    async def all_sent() -> bool:
        for message in messages:
            await world.hurry(message)
        return bool((await world.row(messages[-1]))["status"] == "sent")

    await eventually(all_sent, "the last message")
    texts = [message["text"] for message in inbox.accepted]
    assert [text for text in texts if text != "elsewhere"] == ["0", "1", "2", "3", "4"]
    assert len(texts) == 6


async def test_a_stop_finishes_what_is_under_way(world: Sending, inbox: FakeInbox, start_service: StartService) -> None:
    inbox.faults.append(HANG)
    service = await asyncio.to_thread(start_service, "room_outbound", world.outbound_environment(inbox.url))
    message = await world.message(await world.room())
    await world.becomes(message, "sending")
    await asyncio.to_thread(service.stop)
    row = await world.row(message)
    assert (row["status"], row["error"]) == ("published", "timeout")


async def test_a_refused_message_is_in_the_dead_letter_topic(
    world: Sending, inbox: FakeInbox, start_service: StartService
) -> None:
    message = await world.message(await world.room())
    inbox.faults.append(Fault(422))
    await asyncio.to_thread(start_service, "room_outbound", world.outbound_environment(inbox.url))
    await world.becomes(message, "failed")
    (headers,) = await eventually(lambda: world.dead(message), "the dead letter")
    assert headers == {"error": b"http_422", "attempts": b"1"}


async def test_two_processes_share_an_account_that_is_limited(world: Sending, start_service: StartService) -> None:
    """Each keeps its own pace; where that is too much, the provider says so, and nothing is lost or doubled."""
    room = await world.room()
    await world.channel(room, make_channel_config("slack", {"bot_token": SLACK_TOKEN, "signing_secret": "s"}))
    async with FakeSlack() as slack:
        slack.per_second = 2
        slack.channels |= {f"C{number}" for number in range(12)}
        environment = world.outbound_environment("http://127.0.0.1:9", ROOM_OUTBOUND__SLACK_URL=slack.url)
        messages = [await world.message(room, f"{n}", channel="slack", target=f"C{n}") for n in range(12)]
        for _ in range(2):
            start_service("room_outbound", environment, wait=False)

        async def all_sent() -> bool:
            for message in messages:
                await world.hurry(message)
            return all([(await world.row(message))["status"] == "sent" for message in messages])

        await eventually(all_sent, "every message", 90)
        assert sorted(int(one["text"]) for one in slack.accepted) == list(range(12))
        assert slack.limited > 0
