"""Each channel against a server that checks what the real provider checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import TypeAdapter

from room_common.contracts.channel_config import ChannelConfig, LocalConfig, make_channel_config
from room_common.egress.client import egress_client
from room_common.egress.settings import EgressSettings
from room_common.errors import DependencyUnavailable, Refused
from room_outbound.adapters.slack import Slack
from room_outbound.adapters.telegram import Telegram
from room_outbound.adapters.twilio import TwilioWhatsApp
from room_outbound.adapters.webhook import OutboundWebhook
from room_outbound.domain.provider import Letter, Provider
from room_testing.fake_peer import GARBAGE, HANG, RESET, FakePeer, Fault
from room_testing.fake_providers import (
    ACCOUNT_SID,
    AUTH_TOKEN,
    SLACK_TOKEN,
    TELEGRAM_TOKEN,
    WEBHOOK_SECRET,
    FakeReceiver,
    FakeSlack,
    FakeTelegram,
    FakeTwilio,
)

pytestmark = pytest.mark.integration

SLACK = make_channel_config("slack", {"bot_token": SLACK_TOKEN, "signing_secret": "s"})
TELEGRAM = make_channel_config("telegram", {"bot_token": TELEGRAM_TOKEN, "secret_token": "s"})
WHATSAPP = make_channel_config(
    "whatsapp", {"account_sid": ACCOUNT_SID, "auth_token": AUTH_TOKEN}, sender="+1 (415) 523-8886"
)
WEBHOOK = make_channel_config("webhook", {"secret": WEBHOOK_SECRET})
LOOPBACK: EgressSettings = TypeAdapter(EgressSettings).validate_python(
    {"allowed_networks": ["127.0.0.0/8"], "allow_http": True}
)


def letter(target: str, text: str = "Hello.", part: int = 0) -> Letter:
    return Letter(UUID(int=7), "desk", target, text, datetime(2026, 1, 1, tzinfo=UTC), part)


def quick() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=1.0, trust_env=False)


class World:
    """One provider with its fake."""

    def __init__(self, peer: FakePeer, provider: Provider, config: ChannelConfig, target: Callable[[], str]) -> None:
        self.peer = peer
        self.provider = provider
        self.config = config
        self.target = target

    async def send(self, text: str = "Hello.", target: str | None = None, part: int = 0) -> str:
        return await self.provider.send(letter(target or self.target(), text, part), self.config)


async def make(kind: str) -> AsyncIterator[World]:
    peers: dict[str, FakePeer] = {
        "slack": FakeSlack(),
        "telegram": FakeTelegram(),
        "whatsapp": FakeTwilio(),
        "webhook": FakeReceiver(),
    }
    async with peers[kind] as peer:
        settings = LOOPBACK.model_copy(update={"read_seconds": 1.0})
        makers: dict[str, Callable[[], World]] = {
            "slack": lambda: World(peer, Slack(peer.url, quick()), SLACK, lambda: "C0OPS"),
            "telegram": lambda: World(peer, Telegram(peer.url, quick()), TELEGRAM, lambda: "42"),
            "whatsapp": lambda: World(
                peer, TwilioWhatsApp(peer.url, quick()), WHATSAPP, lambda: "whatsapp:+390612345678"
            ),
            "webhook": lambda: World(
                peer, OutboundWebhook(egress_client(settings)), WEBHOOK, lambda: f"{peer.url}/hook?x=1"
            ),
        }
        world = makers[kind]()
        yield world
        await world.provider.close()


@pytest.fixture(params=["slack", "telegram", "whatsapp", "webhook"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async for made in make(request.param):
        yield made


@pytest.fixture
async def slack() -> AsyncIterator[World]:
    async for made in make("slack"):
        yield made


@pytest.fixture
async def telegram() -> AsyncIterator[World]:
    async for made in make("telegram"):
        yield made


@pytest.fixture
async def whatsapp() -> AsyncIterator[World]:
    async for made in make("whatsapp"):
        yield made


@pytest.fixture
async def webhook() -> AsyncIterator[World]:
    async for made in make("webhook"):
        yield made


async def test_a_message_is_accepted(world: World) -> None:
    assert await world.send()
    assert len(world.peer.accepted) == 1


async def test_a_part_of_the_longest_text_is_accepted(world: World) -> None:
    longest = world.provider.longest or 100_000
    for character in ("a", "&", "*", "!"):
        await world.send(character * longest)
    assert len(world.peer.accepted) == 4


@pytest.mark.parametrize(
    ("fault", "kind", "wish"),
    [
        (Fault(429), "rate_limit", None),
        (Fault(429, {"Retry-After": "17"}), "rate_limit", 17.0),
        (Fault(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), "rate_limit", None),
        (Fault(503), "http_503", None),
        (HANG, "timeout", None),
        (RESET, "reset", None),
    ],
)
async def test_what_passes_is_said_to_pass(world: World, fault: Fault, kind: str, wish: float | None) -> None:
    world.peer.faults.append(fault)
    with pytest.raises(DependencyUnavailable) as failed:
        await world.send()
    assert (failed.value.kind, failed.value.retry_after) == (kind, wish)
    await world.send()


async def test_a_garbled_answer_is_no_acceptance(world: World) -> None:
    world.peer.faults.append(GARBAGE)
    if isinstance(world.peer, FakeReceiver):
        assert await world.send(), "any 2xx is one, whatever the receiver says"
        return
    with pytest.raises(DependencyUnavailable) as failed:
        await world.send()
    assert failed.value.kind == "bad_answer"


@pytest.mark.parametrize("status", [400, 403, 404, 302])
async def test_what_does_not_pass_is_refused(world: World, status: int) -> None:
    world.peer.faults.append(Fault(status, {"Location": "http://127.0.0.1:9/"}, body="no"))
    with pytest.raises(Refused):
        await world.send()
    assert len(world.peer.calls) == 1, "no redirect is followed"


async def test_nobody_there_is_a_connect_error(world: World) -> None:
    nowhere = "http://127.0.0.1:9"
    provider: Provider = (
        OutboundWebhook(egress_client(LOOPBACK))
        if isinstance(world.peer, FakeReceiver)
        else type(world.provider)(nowhere, quick())  # type: ignore[call-arg]
    )
    with pytest.raises(DependencyUnavailable) as failed:
        await provider.send(letter(nowhere if isinstance(world.peer, FakeReceiver) else world.target()), world.config)
    assert failed.value.kind == "connect"
    await provider.close()


async def test_another_channels_config_is_a_defect(world: World) -> None:
    with pytest.raises(Exception, match="not a"):
        await world.provider.send(letter(world.target()), LocalConfig())


async def test_slack_opens_a_conversation_with_a_person_once(slack: World) -> None:
    for _ in range(2):
        await slack.send("**Deal** won: [Acme](https://example.com/a?b=1&c) <!channel> & more", target="u0ada")
    await slack.send(target="C0OPS")
    assert [call.path for call in slack.peer.calls] == [
        "/conversations.open",
        "/chat.postMessage",
        "/chat.postMessage",
        "/chat.postMessage",
    ]
    assert slack.peer.accepted[0]["channel"] == "D0ADA"
    assert slack.peer.accepted[0]["text"] == (
        "*Deal* won: <https://example.com/a?b=1&amp;c|Acme> &lt;!channel&gt; &amp; more"
    )
    with pytest.raises(Refused, match="slack_user_not_found"):
        await slack.send(target="U0NOBODY")


@pytest.mark.parametrize("fault", [HANG, RESET, Fault(500), GARBAGE, Fault(200, body='{"ok":true}')])
async def test_slack_opening_a_conversation_sends_nothing(slack: World, fault: Fault) -> None:
    slack.peer.faults.append(fault)
    with pytest.raises(DependencyUnavailable) as failed:
        await slack.send(target="U0ADA")
    assert failed.value.kind == "connect", "safe to try again on any channel"


@pytest.mark.parametrize(
    ("error", "kind"),
    [("ratelimited", "rate_limit"), ("internal_error", "slack_internal_error")],
)
async def test_slack_errors_that_pass(slack: World, error: str, kind: str) -> None:
    assert isinstance(slack.peer, FakeSlack)
    slack.peer.error = error
    with pytest.raises(DependencyUnavailable) as failed:
        await slack.send()
    assert failed.value.kind == kind


@pytest.mark.parametrize(("error", "reason"), [("is_archived", "slack_is_archived"), ("<b>Ä", "slack_error")])
async def test_slack_errors_that_do_not(slack: World, error: str, reason: str) -> None:
    assert isinstance(slack.peer, FakeSlack)
    slack.peer.error = error
    with pytest.raises(Refused) as failed:
        await slack.send()
    assert failed.value.reason == reason


async def test_telegram_is_sent_plain_text_where_it_refuses_the_markup(telegram: World) -> None:
    assert isinstance(telegram.peer, FakeTelegram)
    await telegram.send("**Deal** won (2.5%): `a\\b` [Acme](https://example.com/x_y)!")
    assert telegram.peer.accepted[-1]["text"] == (r"*Deal* won \(2\.5%\): `a\\b` [Acme](https://example.com/x_y)\!")
    telegram.peer.refuse_markup = True
    await telegram.send("**Deal** won!")
    assert telegram.peer.accepted[-1] == {"chat_id": "42", "text": "**Deal** won!"}


async def test_telegram_says_in_the_body_how_long_to_wait(telegram: World) -> None:
    body = '{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":35}}'
    telegram.peer.faults.append(Fault(429, body=body))
    with pytest.raises(DependencyUnavailable) as failed:
        await telegram.send()
    assert failed.value.retry_after == 35


async def test_telegram_errors_do_not_repeat_the_token(telegram: World) -> None:
    telegram.peer.faults.append(RESET)
    with pytest.raises(DependencyUnavailable) as failed:
        await telegram.send()
    assert failed.value.__cause__ is None and failed.value.__suppress_context__
    assert TELEGRAM_TOKEN not in str(failed.value)


async def test_twilio_numbers_are_canonical_and_its_errors_have_numbers(whatsapp: World) -> None:
    assert isinstance(whatsapp.peer, FakeTwilio)
    await whatsapp.send(target="0039 06 1234-5678")
    assert whatsapp.peer.accepted == [
        {"From": "whatsapp:+14155238886", "To": "whatsapp:+390612345678", "Body": "Hello."}
    ]
    whatsapp.peer.unsubscribed.add("whatsapp:+390612345678")
    with pytest.raises(Refused) as failed:
        await whatsapp.send()
    assert failed.value.reason == "opted_out"
    with pytest.raises(Refused) as failed:
        await whatsapp.send(target="+1")
    assert failed.value.reason == "twilio_21211"


async def test_a_webhook_is_signed_and_keeps_its_id(webhook: World) -> None:
    await webhook.send("Hello.")
    await webhook.send("Hello.")
    first, second = webhook.peer.calls
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(UUID(int=7))
    verified: dict[str, Any] = webhook.peer.accepted[0]
    assert verified["data"] == {"id": str(UUID(int=7)), "room": "desk", "text": "Hello."}


async def test_a_webhook_goes_nowhere_it_may_not() -> None:
    async with FakeReceiver() as peer:
        provider = OutboundWebhook(egress_client(EgressSettings()))
        for target in (peer.url, peer.url.replace("http", "https"), "https://localhost/x", "ftp://example.com/"):
            with pytest.raises(Refused, match="egress_"):
                await provider.send(letter(target), WEBHOOK)
        assert peer.calls == []
        await provider.close()
