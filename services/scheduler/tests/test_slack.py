"""Slack's events, signed by Slack's own library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from room_common.contracts.channel_config import ChannelConfig, make_channel_config
from room_common.errors import Refused
from room_scheduler.domain.replies import NO_TEXT, Post, Reply
from room_scheduler.domain.slack import read_slack

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
CONFIG: ChannelConfig = make_channel_config("slack", {"bot_token": "xoxb-1", "signing_secret": SECRET})
NOW = 1_531_420_618

MESSAGE: dict[str, Any] = {
    "type": "message",
    "user": "U0ADA",
    "text": "Yes &amp; &lt;no&gt;",
    "channel": "D0XYZ",
    "channel_type": "im",
    "ts": "1355517523.000005",
}


def event(**changes: Any) -> bytes:
    callback = {
        "token": "old",
        "team_id": "T1",
        "api_app_id": "A1",
        "event": {name: value for name, value in (MESSAGE | changes).items() if value is not None},
        "type": "event_callback",
        "event_id": "Ev08MFMKH6",
        "event_time": NOW,
        "authorizations": [{"team_id": "T1", "user_id": "U0BOT", "is_bot": True}],
    }
    return json.dumps(callback).encode()


def post(
    body: bytes,
    *,
    secret: str = SECRET,
    timestamp: int = NOW,
    received_at: float = NOW,
    http: dict[str, str] | None = None,
) -> Post:
    signature = SignatureVerifier(secret).generate_signature(timestamp=str(timestamp), body=body)
    assert signature is not None
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": str(timestamp)}
    return Post(body, "application/json", headers | (http or {}), "", received_at)


def test_a_direct_message_belongs_to_the_person_and_to_the_conversation() -> None:
    assert read_slack(post(event()), CONFIG) == Reply("U0ADA", "Yes & <no>", "Ev08MFMKH6", ("D0XYZ", "U0ADA"))


def test_a_message_in_a_channel_belongs_to_the_channel_only() -> None:
    reply = read_slack(post(event(channel="C0OPS", channel_type="channel")), CONFIG)
    assert reply is not None and reply.contacts == ("C0OPS",)


def test_the_retry_header_makes_no_difference() -> None:
    again = post(event(), http={"x-slack-retry-num": "2", "x-slack-retry-reason": "http_timeout"})
    assert read_slack(again, CONFIG) == read_slack(post(event()), CONFIG)


@pytest.mark.parametrize(
    "changes",
    [
        {"bot_id": "B1"},
        {"bot_profile": {"id": "B1"}},
        {"subtype": "bot_message"},
        {"subtype": "message_changed"},
        {"subtype": "message_deleted"},
        {"subtype": "channel_join"},
        {"user": "U0BOT"},
        {"user": None},
        {"channel": None},
        {"type": "app_mention"},
        {"type": "reaction_added"},
    ],
)
def test_what_is_no_reply(changes: dict[str, Any]) -> None:
    assert read_slack(post(event(**changes)), CONFIG) is None


@pytest.mark.parametrize("changes", [{"subtype": "file_share", "text": ""}, {"text": None}])
def test_a_message_without_text_is_one_all_the_same(changes: dict[str, Any]) -> None:
    reply = read_slack(post(event(**changes)), CONFIG)
    assert reply is not None and reply.text == NO_TEXT


@pytest.mark.parametrize("age", [-300, 0, 300])
def test_the_age_is_measured_against_the_receipt(age: int) -> None:
    assert read_slack(post(event(), received_at=NOW + age), CONFIG) is not None


@pytest.mark.parametrize(
    "forged",
    [
        post(event(), secret="another"),
        post(event(), received_at=NOW + 301),
        post(event(), received_at=NOW - 301),
        Post(event(), "application/json", {}, "", NOW),
        Post(event() + b" ", "application/json", post(event()).http, "", NOW),
        post(event(), http={"x-slack-signature": "v0=ä"}),
        post(event(), http={"x-slack-signature": ""}),
        post(event(), http={"x-slack-request-timestamp": "1e9"}),
        post(event(), http={"x-slack-request-timestamp": "9" * 400}),
        post(event(), http={"x-slack-request-timestamp": str(NOW + 1)}),
    ],
)
def test_forgeries(forged: Post) -> None:
    with pytest.raises(Refused) as refused:
        read_slack(forged, CONFIG)
    assert refused.value.reason == "bad_signature"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "event", "user", "authorizations"]), inner)
    ),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_signed_bytes_are_a_reply_none_or_a_named_refusal(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError:
        return  # Slack's library signs text only
    try:
        read_slack(post(body), CONFIG)
    except Refused as refused:
        assert refused.reason in {"undecodable", "not_an_object"}
