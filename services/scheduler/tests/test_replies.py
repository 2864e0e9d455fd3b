"""Reading replies and deciding their fate."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.contracts.channel_config import LocalConfig
from room_common.errors import Refused
from room_scheduler.domain.local import read_local
from room_scheduler.domain.replies import MAX_TEXT, Post, Reply, fate, make_reply


def read(body: bytes) -> Reply:
    return read_local(Post(body, "application/json", {}, "", 0.0), LocalConfig())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_reply_or_a_named_refusal(body: bytes) -> None:
    try:
        reply = read(body)
    except Refused as error:
        assert error.reason in {"undecodable", "not_an_object", "no_sender", "no_text"}
    else:
        assert reply.text


@given(st.text(min_size=1), st.text(min_size=1), st.none() | st.text())
def test_what_is_kept_can_be_stored(sender: str, text: str, own_id: str | None) -> None:
    try:
        reply = read(orjson.dumps({"sender": sender, "text": text, "id": own_id}))
    except (Refused, orjson.JSONEncodeError):
        return
    for value in (reply.sender, reply.text, reply.id or ""):
        assert "\x00" not in value
        value.encode()
    assert len(reply.text) <= MAX_TEXT


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "undecodable"),
        (b"not json", "undecodable"),
        (b'{"sender":"a","text":"\xff"}', "undecodable"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"text":"hi"}', "no_sender"),
        (b'{"sender":" ","text":"hi"}', "no_sender"),
        (b'{"sender":7,"text":"hi"}', "no_sender"),
        (b'{"sender":"a"}', "no_text"),
        (b'{"sender":"a","text":"  "}', "no_text"),
        (b'{"sender":"a","text":["hi"]}', "no_text"),
    ],
)
def test_unusable_replies_are_refused_by_name(body: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        read(body)
    assert refused.value.reason == reason


def test_a_reply_is_read() -> None:
    assert read(b'{"sender":" Ada ","text":" on it\\n","id":"m1"}') == Reply("Ada", "on it", "m1", ("ada",))


_OPEN: dict[str, Any] = {
    "channel": "local",
    "channel_enabled": True,
    "room_exists": True,
    "room_enabled": True,
    "outbound_channel": "local",
    "outbound_target": "ada",
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"outbound_target": "ADA "}, None),
        ({"room_exists": False, "room_enabled": False}, "no_room"),
        ({"room_enabled": False}, "disabled"),
        ({"channel_enabled": False}, "disabled"),
        ({"outbound_channel": "slack"}, "wrong_contact"),
        ({"outbound_channel": None, "outbound_target": None}, "wrong_contact"),
        ({"outbound_target": "bob"}, "wrong_contact"),
        ({"allow": ("bob",)}, "not_allowed"),
        ({"allow": ("bob", " ADA")}, None),
        ({"opted_out": True}, "opted_out"),
        ({"opted_out": True, "outbound_target": "bob"}, "wrong_contact"),
    ],
)
def test_fate(change: dict[str, Any], expected: str | None) -> None:
    assert fate(Reply("Ada", "hi", None, ("ada",)), **(_OPEN | change)) == expected


@given(st.text(st.characters()), st.text(st.characters()))
def test_anything_can_be_made_a_reply_that_is_stored(sender: str, text: str) -> None:
    reply = make_reply(sender, text, None, ())
    for value in (reply.sender, reply.text):
        assert "\x00" not in value and value.encode()[:0] == b""
    assert reply.text and len(reply.text) <= MAX_TEXT
