"""Twilio's forms, checked against Twilio's own library."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict
from twilio.request_validator import RequestValidator

from room_common.contracts.channel_config import ChannelConfig, make_channel_config
from room_common.errors import Refused
from room_scheduler.domain.replies import NO_TEXT, Post, Reply
from room_scheduler.domain.twilio import read_whatsapp, signature

SECRET = "12345"
CONFIG: ChannelConfig = make_channel_config(
    "whatsapp", {"account_sid": "AC" + "a" * 32, "auth_token": SECRET}, sender="+14155238886"
)
URI = "https://hooks.example.test/channels/whatsapp/token"
FORM = [
    ("MessageSid", "SM1"),
    ("From", "whatsapp:+390612345678"),
    ("To", "whatsapp:+14155238886"),
    ("Body", "Sì, grazie"),
    ("NumMedia", "0"),
    ("ProfileName", ""),
]
VALIDATOR = RequestValidator(SECRET)

names = st.sampled_from(["Body", "From", "Media", "a", "A", "b[]", "é"]) | st.text(max_size=5)
forms = st.lists(st.tuples(names, st.text(max_size=8)), max_size=8)


def sign(uri: str, form: list[tuple[str, str]]) -> str:
    return str(VALIDATOR.compute_signature(uri, MultiDict(form)))


def post(form: list[tuple[str, str]], *, uri: str = URI, signed: str | None = None) -> Post:
    given = sign(uri, form) if signed is None else signed
    body = urlencode(form).encode()
    return Post(body, "application/x-www-form-urlencoded", {"x-twilio-signature": given}, uri, 0.0)


def with_field(name: str, value: str) -> list[tuple[str, str]]:
    return [(key, value if key == name else kept) for key, kept in FORM]


def test_a_message() -> None:
    expected = Reply("+390612345678", "Sì, grazie", "SM1", ("+390612345678",))
    assert read_whatsapp(post(FORM), CONFIG) == expected


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("STOP", "stop"),
        (" stop\n", "stop"),
        ("Unsubscribe", "stop"),
        ("START", "start"),
        ("yes", None),
        ("stop it", None),
    ],
)
def test_words_of_opting(text: str, wish: str | None) -> None:
    reply = read_whatsapp(post(with_field("Body", text)), CONFIG)
    assert reply is not None and reply.wish == wish


def test_a_picture_without_text() -> None:
    reply = read_whatsapp(post(with_field("Body", "")), CONFIG)
    assert reply is not None and reply.text == NO_TEXT


def test_a_report_on_a_message_of_ours_is_no_reply() -> None:
    form = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("From", "whatsapp:+14155238886")]
    assert read_whatsapp(post(form), CONFIG) is None


@given(forms, st.sampled_from([URI, "https://h.example:8443/a", "http://h.example/a?b=c&d=%20", "https://[::1]:80/"]))
def test_our_signature_is_twilios(form: list[tuple[str, str]], uri: str) -> None:
    fields: dict[str, list[str]] = {}
    for name, value in form:
        fields.setdefault(name, []).append(value)
    assert signature(SECRET.encode(), uri, fields) == sign(uri, form)


@pytest.mark.parametrize(
    ("signed_over", "posted_to"),
    [
        ("https://h.example/a", "https://h.example:443/a"),
        ("https://h.example:443/a", "https://h.example/a"),
        ("https://h.example/a", "https://h.example:8443/a"),
        ("http://h.example:80/a?x=1", "http://h.example/a?x=1"),
    ],
)
def test_with_or_without_the_port(signed_over: str, posted_to: str) -> None:
    assert read_whatsapp(post(FORM, uri=posted_to, signed=sign(signed_over, FORM)), CONFIG) is not None
    assert VALIDATOR.validate(posted_to, MultiDict(FORM), sign(signed_over, FORM))


def test_doubled_fields() -> None:
    form = [*FORM, ("Media", "b"), ("Media", "a"), ("Media", "b")]
    assert read_whatsapp(post(form), CONFIG) is not None


def test_a_json_body_signed_by_its_hash() -> None:
    body = json.dumps({"MessageSid": "SM2", "From": "whatsapp:+390612345678", "Body": "ok"}).encode()
    uri = f"{URI}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    given = str(VALIDATOR.compute_signature(uri, {}))
    assert VALIDATOR.validate(uri, body.decode(), given)
    signed = Post(body, "application/json", {"x-twilio-signature": given}, uri, 0.0)
    reply = read_whatsapp(signed, CONFIG)
    assert reply is not None and (reply.text, reply.id) == ("ok", "SM2")
    with pytest.raises(Refused, match="bad_signature"):
        read_whatsapp(Post(body + b" ", "application/json", signed.http, uri, 0.0), CONFIG)


@pytest.mark.parametrize(
    "forged",
    [
        post(FORM, signed=""),
        post(FORM, signed="ä"),
        post(FORM, signed=sign(URI, FORM)[:-2]),
        post(FORM, signed=sign(URI + "x", FORM)),
        post(with_field("Body", "Sì"), signed=sign(URI, FORM)),
        post([*FORM, ("More", "x")], signed=sign(URI, FORM)),
        Post(urlencode(FORM).encode(), "application/x-www-form-urlencoded", {}, URI, 0.0),
    ],
)
def test_forgeries(forged: Post) -> None:
    with pytest.raises(Refused, match="bad_signature"):
        read_whatsapp(forged, CONFIG)


@given(st.binary(), st.text(alphabet="abc=&%[]:", max_size=20))
def test_any_bytes_are_refused_by_name(body: bytes, query: str) -> None:
    with pytest.raises(Refused) as refused:
        read_whatsapp(Post(body, "", {"x-twilio-signature": "x"}, f"{URI}?{query}", 0.0), CONFIG)
    assert refused.value.reason in {"bad_signature", "undecodable"}
