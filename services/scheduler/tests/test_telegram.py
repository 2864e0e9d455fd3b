"""Telegram's updates."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.contracts.channel_config import ChannelConfig, make_channel_config
from room_common.errors import Refused
from room_scheduler.domain.replies import NO_TEXT, Post, Reply
from room_scheduler.domain.telegram import read_telegram

SECRET = "telegram-secret_1"
CONFIG: ChannelConfig = make_channel_config(
    "telegram", {"bot_token": "123456:abcdefghijklmnop", "secret_token": SECRET}
)
MESSAGE: dict[str, Any] = {
    "message_id": 9,
    "from": {"id": 42, "is_bot": False, "first_name": "Ada"},
    "chat": {"id": -100200, "type": "supergroup", "username": "Desk_Chat"},
    "date": 1,
    "text": "On it.",
}


def post(body: object, secret: str | None = SECRET) -> Post:
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    if secret is None:
        return Post(given, "application/json", {}, "", 0.0)
    hashed = f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"
    return Post(given, "application/json", {"x-telegram-bot-api-secret-token": hashed}, "", 0.0)


def update(**changes: Any) -> dict[str, Any]:
    return {"update_id": 77, "message": MESSAGE | changes}


def test_a_message() -> None:
    assert read_telegram(post(update()), CONFIG) == Reply("42", "On it.", "77", ("-100200", "@desk_chat"))


def test_a_picture() -> None:
    reply = read_telegram(post(update(text=None, caption="Look.")), CONFIG)
    assert reply is not None and reply.text == "Look."
    reply = read_telegram(post(update(text=None)), CONFIG)
    assert reply is not None and reply.text == NO_TEXT


@pytest.mark.parametrize(
    "body",
    [
        update(**{"from": {"id": 1, "is_bot": True}}),
        update(**{"from": None}),
        update(chat={}),
        {"update_id": 1, "edited_message": MESSAGE},
        {"update_id": 1, "channel_post": MESSAGE},
        {},
    ],
)
def test_what_is_no_reply(body: object) -> None:
    assert read_telegram(post(body), CONFIG) is None


@pytest.mark.parametrize("secret", [None, "another", ""])
def test_forgeries(secret: str | None) -> None:
    with pytest.raises(Refused, match="bad_signature"):
        read_telegram(post(update(), secret), CONFIG)


@given(st.binary())
def test_any_bytes_are_none_or_a_named_refusal(body: bytes) -> None:
    try:
        read_telegram(post(body), CONFIG)
    except Refused as refused:
        assert refused.reason in {"undecodable", "not_an_object"}
