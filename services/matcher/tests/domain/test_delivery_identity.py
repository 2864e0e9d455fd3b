"""By what a delivery is recognised when it comes again."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from room_common.domain.decoding import Decoded, Item, decode_payload
from room_common.domain.jsonview import Json
from room_matcher.domain.delivery_identity import BODY_TTL_S, ID_TTL_S, Identity, identify, is_handshake_confirmation


def items(body: bytes, *, split: bool = False) -> tuple[Item, ...]:
    decoded = decode_payload(body, "application/json", {}, split=split)
    assert isinstance(decoded, Decoded)
    return decoded.items


def identity(source_type: str, body: bytes, headers: dict[str, str] | None = None) -> Identity:
    (item,) = items(body)
    return identify(source_type, headers or {}, item)


@pytest.mark.parametrize(
    ("source_type", "body", "headers", "key"),
    [
        ("github", b"{}", {"x-github-delivery": "72d3162e-cc78-11e3"}, "x-github-delivery:72d3162e-cc78-11e3"),
        (" GitHub ", b"{}", {"x-github-delivery": "d1"}, "x-github-delivery:d1"),
        ("github", b"{}", {"x-github-delivery": "d1", "webhook-id": "w1"}, "x-github-delivery:d1"),
        ("stripe", b'{"id":"evt_1"}', {}, "stripe:evt_1"),
        ("stripe", b'{"id":"evt_1"}', {"webhook-id": "w1"}, "stripe:evt_1"),
        ("slack", b'{"event_id":"Ev1"}', {}, "slack:Ev1"),
        ("hubspot", b'{"eventId":1234567890123456789}', {}, "hubspot:1234567890123456789"),
        ("standard", b"{}", {"webhook-id": "msg_1", "x-github-delivery": "d"}, "webhook-id:msg_1"),
        ("shopify", b"{}", {"x-shopify-webhook-id": "b54557e4"}, "x-shopify-webhook-id:b54557e4"),
        ("standard", b"{}", {"svix-id": "msg_1"}, "svix-id:msg_1"),
        ("gitlab", b"{}", {"idempotency-key": "i1", "x-gitlab-event-uuid": "e1"}, "idempotency-key:i1"),
        ("gitlab", b"{}", {"x-gitlab-event-uuid": "e1", "x-gitlab-webhook-uuid": "h1"}, "x-gitlab-event-uuid:e1"),
        ("generic", b"{}", {"x-amz-sns-message-id": "m1"}, "x-amz-sns-message-id:m1"),
        ("generic", b"{}", {"idempotency-key": "i1", "webhook-id": "w1"}, "webhook-id:w1"),
        ("slack", b'{"event_id":"Ev2"}', {"x-slack-retry-num": "1"}, "slack:Ev2"),
        ("generic", b"{}", {"webhook-id": "w1"}, "webhook-id:w1"),
        ("generic", b"{}", {"x-github-delivery": "d1"}, "x-github-delivery:d1"),
        ("stripe", b'{"object":"event"}', {"webhook-id": "w1"}, "webhook-id:w1"),
    ],
)
def test_a_sender_that_gives_an_id_is_recognised_by_it(
    source_type: str, body: bytes, headers: dict[str, str], key: str
) -> None:
    found = identity(source_type, body, headers)
    assert found.key == key
    assert found.ttl_seconds == ID_TTL_S == 86_400


@pytest.mark.parametrize(
    ("source_type", "body", "headers"),
    [
        ("github", b'{"id":"x"}', {}),
        ("gitlab", b"{}", {"x-gitlab-webhook-uuid": "h1"}),
        ("slack", b'{"type":"block_actions","trigger_id":"1.2"}', {}),
        ("github", b"{}", {"x-github-delivery": "  "}),
        ("stripe", b'{"id":null}', {}),
        ("stripe", b'{"id":""}', {}),
        ("stripe", b'{"id":{"a":1}}', {}),
        ("hubspot", b'{"eventId":true}', {}),
        ("hubspot", b'[{"eventId":1}]', {}),
        ("generic", b'{"id":"evt_1","eventId":1}', {}),
    ],
)
def test_others_are_recognised_by_their_content_for_ten_minutes(
    source_type: str, body: bytes, headers: dict[str, str]
) -> None:
    found = identity(source_type, body, headers)
    assert found.key == f"sha256:{found.content_sha256.hex()}"
    assert found.ttl_seconds == BODY_TTL_S == 600


def test_the_ten_minutes_can_be_set() -> None:
    (item,) = items(b"{}")
    assert identify("generic", {}, item, body_ttl_seconds=60).ttl_seconds == 60
    assert identify("generic", {"webhook-id": "w"}, item, body_ttl_seconds=60).ttl_seconds == ID_TTL_S


def test_content_is_the_received_bytes() -> None:
    assert identity("generic", b'{"a": 1}').content_sha256 == hashlib.sha256(b'{"a": 1}').digest()
    assert identity("github", b'{"a": 1}') != identity("github", b'{"a":1}')


@pytest.mark.parametrize(("source_type", "field"), [("stripe", "pending_webhooks"), ("hubspot", "attemptNumber")])
def test_what_a_retry_changes_does_not_count(source_type: str, field: str) -> None:
    first = {"id": "evt_1", "eventId": 1, "n": 2, field: 0}
    again = {"n": 2, field: 3, "eventId": 1, "id": "evt_1"}
    other = {**first, "n": 3}
    nested = {**first, "data": {field: 1}}
    found = [identity(source_type, json.dumps(event).encode()) for event in (first, again, other, nested)]
    assert found[0] == found[1]
    assert found[2].key == found[0].key
    assert len({one.content_sha256 for one in found}) == 3
    assert identity(source_type, json.dumps({**nested, "data": {field: 2}}).encode()) != found[3]


def test_a_retry_without_an_id_is_still_the_same_content() -> None:
    assert identity("hubspot", b'{"n":1,"attemptNumber":0}') == identity("hubspot", b'{"n":1,"attemptNumber":1}')


def test_each_element_of_a_batch_has_its_own_identity() -> None:
    batch = [{"eventId": number, "objectId": 7} for number in range(99)]
    found = items(json.dumps([*batch, {"objectId": 8}]).encode(), split=True)
    identities = [identify("hubspot", {"webhook-id": "w1", "x-github-delivery": "d1"}, item) for item in found]
    assert [one.key for one in identities[:99]] == [f"hubspot:{number}" for number in range(99)]
    assert identities[99].key == f"sha256:{identities[99].content_sha256.hex()}"
    generic = [identify("generic", {"webhook-id": "w1"}, item) for item in found]
    assert len({one.key for one in generic}) == 100


def test_a_batch_redelivered_in_another_grouping_is_recognised() -> None:
    first = items(b'[{"eventId":1,"attemptNumber":0},{"eventId":2,"attemptNumber":0}]', split=True)
    again = items(b'[{"eventId":2,"attemptNumber":1}]', split=True)
    assert identify("hubspot", {}, first[1]) == identify("hubspot", {}, again[0])


@settings(deadline=None, max_examples=100)
@given(value=st.text(max_size=400), source_type=st.sampled_from(["github", "generic", "stripe", "hubspot"]))
def test_any_header_makes_a_key_that_an_index_takes(value: str, source_type: str) -> None:
    key = identity(source_type, b"{}", {"x-github-delivery": value}).key
    assert key.isascii()
    assert key.isprintable()
    assert len(key) <= 250


def test_long_ids_that_differ_have_keys_that_differ() -> None:
    one, other = ("x" * 300 + end for end in "ab")
    assert identity("github", b"{}", {"x-github-delivery": one}) != identity(
        "github", b"{}", {"x-github-delivery": other}
    )


# Confirmations that are never fetched.


def sns(kind: str) -> bytes:
    return json.dumps(
        {
            "Type": kind,
            "MessageId": "165545c9",
            "Token": "2336412f",
            "TopicArn": "arn:aws:sns:us-west-2:123456789012:MyTopic",
            "SubscribeURL": "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription",
        }
    ).encode()


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_sns_confirmations_are_handshakes(kind: str) -> None:
    decoded = decode_payload(sns(kind), "text/plain; charset=UTF-8", {}, split=False)
    assert isinstance(decoded, Decoded)
    assert is_handshake_confirmation(decoded.items[0].view)


@pytest.mark.parametrize(
    "view",
    [
        {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": "SubscriptionConfirmation"},
        {"Type": "SubscriptionConfirmation"},
        {"Type": ["SubscriptionConfirmation"], "TopicArn": "a"},
        {"type": "SubscriptionConfirmation", "TopicArn": "a"},
        {"data": {"Type": "SubscriptionConfirmation", "TopicArn": "a"}},
        ["SubscriptionConfirmation"],
        None,
    ],
)
def test_other_events_are_not(view: Json) -> None:
    assert not is_handshake_confirmation(view)
