"""outbound killed around the provider's call: nothing is lost, and a message is doubled only inside that call."""

from __future__ import annotations

import asyncio

import pytest

from room_common.contracts.channel_config import make_channel_config
from room_testing.fake_peer import FakeInbox
from room_testing.fake_providers import SLACK_TOKEN, FakeSlack
from room_testing.parts import Parts
from room_testing.plugin import StartService
from room_testing.sending_world import Sending

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("point", "copies"),
    [("outbound.before_send", 1), ("outbound.after_send", 2), ("outbound.after_settle", 1)],
)
async def test_killed_at(
    world: Sending, inbox: FakeInbox, start_service: StartService, point: str, copies: int
) -> None:
    room = await world.room()
    messages = [await world.message(room, f"{n}") for n in range(3)]
    environment = world.outbound_environment(inbox.url)
    victim = start_service("room_outbound", environment, crash=f"{point}:2", wait=False)
    assert await asyncio.to_thread(victim.wait_exit) == -9
    await world.cut_off(messages[1])
    await asyncio.to_thread(start_service, "room_outbound", environment)
    await world.becomes(messages[-1], "sent")
    assert [message["text"] for message in inbox.accepted] == ["0"] + ["1"] * copies + ["2"]
    assert [(await world.row(message))["status"] for message in messages] == ["sent"] * 3


async def test_killed_at_on_a_channel_that_wants_nothing_twice(
    world: Sending, inbox: FakeInbox, start_service: StartService
) -> None:
    room = await world.room()
    await world.once_only(room)
    messages = [await world.message(room, f"{n}") for n in range(3)]
    environment = world.outbound_environment(inbox.url)
    victim = start_service("room_outbound", environment, crash="outbound.after_send:2", wait=False)
    assert await asyncio.to_thread(victim.wait_exit) == -9
    await world.cut_off(messages[1])
    await asyncio.to_thread(start_service, "room_outbound", environment)
    await world.becomes(messages[-1], "sent")
    assert [message["text"] for message in inbox.accepted] == ["0", "1", "2"]
    assert [(await world.row(message))["status"] for message in messages] == ["sent", "unknown", "sent"]
    assert "message_failed" in await world.activity(room)


async def test_killed_between_two_parts_goes_on_with_the_part_that_was_under_way(
    world: Sending, start_service: StartService
) -> None:
    room = await world.room()
    await world.channel(room, make_channel_config("slack", {"bot_token": SLACK_TOKEN, "signing_secret": "s"}))
    parts = [letter * 3900 for letter in "abcd"]
    message = await world.message(room, "".join(parts), channel="slack", target="C0OPS")
    async with FakeSlack() as slack:
        environment = world.outbound_environment("http://127.0.0.1:9", ROOM_OUTBOUND__SLACK_URL=slack.url)
        for point in ("outbound.before_send:3", "outbound.after_send:1"):
            victim = start_service("room_outbound", environment, crash=point, wait=False)
            assert await asyncio.to_thread(victim.wait_exit) == -9
            await world.cut_off(message)
        assert (await world.row(message))["parts_sent"] == 2
        await asyncio.to_thread(start_service, "room_outbound", environment)
        await world.becomes(message, "sent")
        assert [one["text"][0] for one in slack.accepted] == ["a", "b", "c", "c", "d"]


async def test_two_processes_send_each_message_once(
    world: Sending, inbox: FakeInbox, start_service: StartService
) -> None:
    room = await world.room()
    messages = [await world.message(room, f"{n}", target=f"t{n % 3}") for n in range(30)]
    environment = world.outbound_environment(inbox.url)
    for _ in range(2):
        start_service("room_outbound", environment, wait=False)
    for message in messages:
        await world.becomes(message, "sent")
    by_target = [[m["text"] for m in inbox.accepted if m["target"] == f"t{n}"] for n in range(3)]
    assert by_target == [[f"{n}" for n in range(first, 30, 3)] for first in range(3)]


async def test_postgresql_restarts_while_messages_go_out(
    world: Sending, inbox: FakeInbox, start_service: StartService, room_parts: Parts
) -> None:
    """What the provider accepted is written down once PostgreSQL is back, and not sent again."""
    try:
        server = room_parts.postgres()
    except LookupError as error:
        pytest.skip(str(error))
    room = await world.room()
    await asyncio.to_thread(start_service, "room_outbound", world.outbound_environment(inbox.url))
    messages = [await world.message(room, f"{n}", target=f"t{n}") for n in range(40)]
    for _ in range(2):
        await asyncio.to_thread(server.restart)
        await asyncio.sleep(0.5)
    for message in messages:
        await world.becomes(message, "sent")
    assert sorted(int(one["text"]) for one in inbox.accepted) == list(range(40))
