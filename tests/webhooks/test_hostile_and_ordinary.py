"""Ordinary and hostile webhooks as senders send them, from the socket to the question: every case and its kin."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote_plus

import pytest

from room_common.domain.jsonview import json_text
from room_common.domain.signing import (
    sign_github,
    sign_hubspot,
    sign_shopify,
    sign_slack,
    sign_standard,
    sign_stripe,
)
from room_testing.judged_port import OK, PUBLIC_URI, TOO_LARGE, JudgedPort, Kind, Received
from room_testing.webhook_port import FORGED, TOKEN, post

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = SECRET.encode()
JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
FORM_UTF8 = ("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")

Header = tuple[str, str]


def request(body: bytes, *headers: Header | dict[str, str], query: bytes = b"") -> bytes:
    """A POST to the source's URL."""
    pairs = [pair for one in headers for pair in (one.items() if isinstance(one, dict) else (one,))]
    lines = tuple(f"{name}: {value}".encode("latin-1") for name, value in pairs)
    return post(body, path=b"/webhooks/" + TOKEN + query, headers=lines)


def chunked(*chunks: bytes) -> bytes:
    head = b"POST /webhooks/" + TOKEN + b" HTTP/1.1\r\nHost: room.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def get(query: bytes, token: bytes = TOKEN) -> bytes:
    return b"GET /webhooks/" + token + b"?" + query + b" HTTP/1.1\r\nHost: room.test\r\n\r\n"


def now() -> int:
    return int(time.time())


def recorded(received: Received, *outcomes: str) -> None:
    """The sender was told that all is well, and this is what the delivery came to."""
    assert received.said == OK
    assert received.outcomes == list(outcomes)


# 1. Signatures are over the received bytes.

SPACED = b'{ "ref":"refs/heads/main" ,"pusher" : {"name":"Ren\\u00e9"}}\n'


@pytest.mark.parametrize(
    "body",
    [
        SPACED,
        b'\xef\xbb\xbf{"a":1}',  # a byte order mark is signed too
        b'{"b":1.0,"a":1,"a":2,"e":1E2}',  # re-serialised it would be another body
        '{"name":"Rene\u0301","emoji":"\U0001f600"}'.encode(),
    ],
)
async def test_case_1_a_signature_covers_the_bytes_as_received(port: JudgedPort, body: bytes) -> None:
    source = Kind("github", (SECRET,))
    recorded(await port.receive(source, request(body, JSON, sign_github(KEY, body))), "asked")
    changed = body.replace(b" ", b"", 1) if b" " in body else body + b" "
    wrong = await port.receive(source, request(changed, JSON, sign_github(KEY, body)))
    recorded(wrong, "bad_signature: mismatch")
    again = json.dumps(json.loads(body)).encode()
    assert again != body
    recorded(await port.receive(source, request(again, JSON, sign_github(KEY, body))), "bad_signature: mismatch")


# 2. GitHub as a form.


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (FORM, lambda text: b"payload=" + quote_plus(text).encode()),
        (FORM_UTF8, lambda text: b"payload=" + quote_plus(text).encode() + b"&"),
        (
            ("Content-Type", "Application/X-WWW-Form-URLencoded"),
            lambda text: b"a=b&payload=" + quote_plus(text).encode(),
        ),
    ],
)
async def test_case_2_a_form_is_verified_as_a_form_and_unwrapped(
    port: JudgedPort, content_type: Header, form: Callable[[str], bytes]
) -> None:
    source = Kind("github", (SECRET,))
    payload = {"ref": "refs/heads/a+b & c=d", "pusher": {"name": "René"}}
    body = form(json.dumps(payload))
    received = await port.receive(
        source, request(body, content_type, sign_github(KEY, body), ("X-GitHub-Event", "push"))
    )
    recorded(received, "asked")
    assert received.verified
    assert received.view == payload
    assert received.record is not None and received.record.envelope.http["x-github-event"] == "push"
    over_json = sign_github(KEY, json.dumps(payload).encode())
    recorded(await port.receive(source, request(body, content_type, over_json)), "bad_signature: mismatch")


# 3. Slack's handshake.


@pytest.mark.parametrize(
    ("body", "echo"),
    [
        (b'{"type":"url_verification","challenge":"abc"}', b"abc"),
        (b'{"token":"t","challenge":"\\u00e9 <b>","type":"url_verification"}', "é <b>".encode()),
        (
            b' {"type" : "url_verification",\n"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWM"}',
            b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWM",
        ),
    ],
)
async def test_case_3_a_slack_challenge_is_echoed_and_is_no_event(port: JudgedPort, body: bytes, echo: bytes) -> None:
    received = await port.receive(Kind("slack", (SECRET,)), request(body, JSON))
    assert received.said == (200, echo)
    assert received.record is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"event_callback","event_id":"Ev1","event":{"type":"url_verification","challenge":"abc"}}',
        b'{"type":"url_verification","challenge":"abc","event_id":"Ev2"}',
    ],
)
async def test_case_3_what_only_mentions_a_challenge_is_an_event(port: JudgedPort, body: bytes) -> None:
    recorded(await port.receive(Kind("slack"), request(body, JSON)), "asked")


# 4. Slack's interactive messages and slash commands.


@pytest.mark.parametrize(
    "content_type", [FORM_UTF8, FORM, ("content-type", 'APPLICATION/x-www-form-urlencoded;Charset="utf-8"')]
)
async def test_case_4_a_slack_form_is_verified_and_unwrapped(port: JudgedPort, content_type: Header) -> None:
    source = Kind("slack", ("old", SECRET))
    payload = {"type": "block_actions", "trigger_id": "1.2", "user": {"name": "zoë"}}
    body = b"payload=" + quote_plus(json.dumps(payload)).encode()
    received = await port.receive(source, request(body, content_type, sign_slack(KEY, body, timestamp_s=now())))
    recorded(received, "asked")
    assert received.verified and received.view == payload
    for age, outcome in (
        (290, "duplicate"),
        (-290, "duplicate"),
        (400, "bad_signature: stale"),
        (-400, "bad_signature: stale"),
    ):
        late = sign_slack(KEY, body, timestamp_s=now() - age)
        recorded(await port.receive(source, request(body, content_type, late)), outcome)
    moved = sign_slack(KEY, body, timestamp_s=now() - 400) | {"x-slack-request-timestamp": str(now())}
    recorded(await port.receive(source, request(body, content_type, moved)), "bad_signature: mismatch")


async def test_case_4_a_slash_command_is_an_object_of_its_fields(port: JudgedPort) -> None:
    body = b"command=%2Froom&text=how+is+it+going%3F&user_name=zo%C3%AB"
    source = Kind("slack", (SECRET,))
    received = await port.receive(source, request(body, FORM, sign_slack(KEY, body, timestamp_s=now())))
    recorded(received, "asked")
    assert received.view == {"command": "/room", "text": "how is it going?", "user_name": "zoë"}


# 5. Retries.


def slack_event(event_id: str) -> bytes:
    return json.dumps({"type": "event_callback", "event_id": event_id, "event": {"type": "message"}}).encode()


async def test_case_5_a_retry_is_a_duplicate_only_of_what_arrived(port: JudgedPort) -> None:
    source = Kind("slack", (SECRET,))

    async def send(event_id: str, *retry: Header) -> Received:
        body = slack_event(event_id)
        return await port.receive(source, request(body, JSON, sign_slack(KEY, body, timestamp_s=now()), *retry))

    first, again = ("X-Slack-Retry-Num", "1"), ("X-Slack-Retry-Num", "2")
    recorded(await send("Ev1"), "asked")
    recorded(await send("Ev1", first, ("X-Slack-Retry-Reason", "http_timeout")), "duplicate")
    recorded(await send("Ev2", first), "asked")
    recorded(await send("Ev2", again), "duplicate")


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("github", {"X-GitHub-Delivery": "d1"}),
        ("gitlab", {"Idempotency-Key": "i1", "X-Gitlab-Event-UUID": "e1"}),
        ("shopify", {"X-Shopify-Webhook-Id": "w1", "X-Shopify-Triggered-At": "2026-01-01T00:00:00Z"}),
        ("generic", {"x-amz-sns-message-id": "m1"}),
        ("standard", {"webhook-id": "msg_1"}),
    ],
)
async def test_case_5_other_senders_retry_under_their_own_ids(
    port: JudgedPort, kind: str, headers: dict[str, str]
) -> None:
    source = Kind(kind)
    recorded(await port.receive(source, request(b'{"a":1}', JSON, headers)), "asked")
    recorded(await port.receive(source, request(b'{"a":1}', JSON, headers)), "duplicate")
    recorded(await port.receive(source, request(b'{"a":2}', JSON, headers)), "asked")  # a conflict is judged
    recorded(await port.receive(source, request(b'{"a":1}', JSON)), "asked")


# 6. HubSpot's batches.


def hubspot(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"eventId": start + number, "attemptNumber": 0, "objectId": 7} for number in range(count)]


async def signed_batch(port: JudgedPort, source: Kind, body: bytes, query: bytes = b"") -> Received:
    uri = PUBLIC_URI + query.decode()
    headers = sign_hubspot(KEY, body, method="POST", uri=uri, timestamp_ms=now() * 1000)
    return await port.receive(source, request(body, JSON, headers, query=query))


async def test_case_6_a_batch_is_as_many_events(port: JudgedPort) -> None:
    source = Kind("hubspot", (SECRET,))
    received = await signed_batch(port, source, json.dumps(hubspot(100)).encode())
    recorded(received, *["asked"] * 100)
    assert received.verified
    assert len(source.seen) == 100
    assert [item.index for item in received.items] == list(range(100))
    again = hubspot(100)
    again[3]["attemptNumber"] = 1
    regrouped = [*again[:10], *hubspot(1, start=500)]
    recorded(await signed_batch(port, source, json.dumps(regrouped, indent=1).encode()), *["duplicate"] * 10, "asked")


async def test_case_6_one_broken_element_does_not_spoil_its_neighbours(port: JudgedPort) -> None:
    body = json.dumps([*hubspot(1), 42, None, {"eventId": 9, "x": "\x00"}, {"no": "id"}]).encode()
    received = await signed_batch(port, Kind("hubspot", (SECRET,)), body, query=b"?to=a%40b")
    not_an_object = "undecodable: not_an_object"
    recorded(received, "asked", not_an_object, not_an_object, "asked", "asked")


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (json.dumps(hubspot(101)).encode(), "undecodable: too_many_items"),
        (b"[]", "undecodable: empty"),
        (b'[{"eventId":1},', "undecodable: invalid_json"),
    ],
)
async def test_case_6_batches_that_are_none(port: JudgedPort, body: bytes, outcome: str) -> None:
    recorded(await signed_batch(port, Kind("hubspot", (SECRET,)), body), outcome)


async def test_case_6_an_array_of_a_source_that_does_not_batch_is_one_event(port: JudgedPort) -> None:
    body = json.dumps(hubspot(101)).encode()
    recorded(await port.receive(Kind("generic"), request(body, JSON)), "asked")
    recorded(await port.receive(Kind("generic"), request(b"[]", JSON)), "asked")
    recorded(await port.receive(Kind("generic", split=True), request(b'[{"a":1},{"a":2}]', JSON)), "asked", "asked")
    recorded(await port.receive(Kind("hubspot", split=False), request(body, JSON)), "asked")


# 7. Meta's and WebSub's challenge, and Microsoft Graph's.


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (get(b"hub.mode=subscribe&hub.verify_token=" + TOKEN + b"&hub.challenge=123"), 200, b"123"),
        (get(b"hub.mode=subscribe&hub.verify_token=WRONG&hub.challenge=123"), 403, None),
        (get(b"hub.challenge=a%20b%2B&hub.mode=subscribe&hub.verify_token=" + TOKEN), 200, b"a b+"),
        (get(b"hub.mode=subscribe&hub.topic=https%3A%2F%2Fa.example%2Ffeed&hub.challenge=x"), 200, b"x"),
        (get(b"hub.mode=subscribe&hub.verify_token=" + FORGED + b"&hub.challenge=1", token=FORGED), 403, None),
        (get(b"hub.mode=subscribe&hub.challenge=123"), 403, None),
        (get(b"hub.mode=subscribe"), 405, None),
        (
            request(b"", query=b"?validationToken=Validation%3A+Testing+client+app"),
            200,
            b"Validation: Testing client app",
        ),
    ],
)
async def test_case_7_challenges_are_echoed_to_who_knows_the_url(
    port: JudgedPort, data: bytes, status: int, body: bytes | None
) -> None:
    received = await port.receive(Kind("generic"), data)
    assert received.answer.status == status
    assert received.record is None
    if body is not None:
        assert received.answer.body == body
        assert received.answer.headers["content-type"].startswith("text/plain")


# 8. Stripe during a rotation, and late.

EVENT = b'{"id":"evt_1","type":"invoice.paid"}'


def stripe_header(*parts: str) -> dict[str, str]:
    return {"Stripe-Signature": ",".join(parts)}


async def test_case_8_any_of_several_values_in_time(port: JudgedPort) -> None:
    at = now()
    right = sign_stripe(KEY, EVENT, timestamp_s=at)["stripe-signature"].split(",")[1]
    wrong = "v1=" + "0" * 64
    cases = [
        (stripe_header(f"t={at}", wrong, right), "asked"),
        (stripe_header(f"t={at}", right, wrong, "v0=" + "1" * 64), "asked"),
        (stripe_header(f"t={at}", wrong), "bad_signature: mismatch"),
        (stripe_header(f"t={at - 1}", right), "bad_signature: mismatch"),
        (stripe_header(right), "bad_signature: malformed"),
        ({}, "bad_signature: missing"),
        (sign_stripe(KEY, EVENT, timestamp_s=at - 20 * 60), "bad_signature: stale"),
        (sign_stripe(KEY, EVENT, timestamp_s=at + 20 * 60), "bad_signature: stale"),
        (sign_stripe(b"whsec_new", EVENT, timestamp_s=at), "asked"),
    ]
    for headers, outcome in cases:
        received = await port.receive(Kind("stripe", (SECRET, "whsec_new")), request(EVENT, JSON, headers))
        recorded(received, outcome)
        assert received.verified is (outcome == "asked")


async def test_case_8_standard_webhooks_and_shopify_rotate_alike(port: JudgedPort) -> None:
    at = now()
    made = sign_standard(KEY, EVENT, message_id="msg_1", timestamp_s=at)
    two = made | {"webhook-signature": f"v1,{'A' * 43}= {made['webhook-signature']}"}
    late = sign_standard(KEY, EVENT, message_id="msg_1", timestamp_s=at - 1200)
    for headers, outcome in ((two, "asked"), (late, "bad_signature: stale")):
        source = Kind("standard", ("whsec_b3RoZXI=", SECRET))
        recorded(await port.receive(source, request(EVENT, JSON, headers)), outcome)
    shopify = sign_shopify(b"old", EVENT)
    recorded(await port.receive(Kind("shopify", ("new", "old")), request(EVENT, JSON, shopify)), "asked")
    recorded(await port.receive(Kind("shopify", ("new",)), request(EVENT, JSON, shopify)), "bad_signature: mismatch")


# 9. Compressed bodies.


@pytest.mark.parametrize(
    ("compress", "coding"),
    [
        (gzip.compress, "gzip"),
        (zlib.compress, "deflate"),
        (lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:]), "GZIP"),
        (lambda body: gzip.compress(zlib.compress(body)), "deflate, gzip"),
    ],
)
async def test_case_9_a_compressed_body_is_matched_decoded_and_verified_as_received(
    port: JudgedPort, compress: Callable[[bytes], bytes], coding: str
) -> None:
    plain = json.dumps({"text": "x" * 10_000, "id": "evt_1"}).encode()
    body = compress(plain)
    source = Kind("github", (SECRET,))
    encoded = ("Content-Encoding", coding)
    received = await port.receive(source, request(body, JSON, encoded, sign_github(KEY, body)))
    recorded(received, "asked")
    assert received.view == json.loads(plain)
    (item,) = received.items
    assert (item.raw, item.content_encoding) == (body, coding)
    over_plain = await port.receive(source, request(body, JSON, encoded, sign_github(KEY, plain)))
    recorded(over_plain, "bad_signature: mismatch")


# 10. Bombs.

ZEROS = b"0" * 60_000_000


@pytest.mark.parametrize(
    ("bomb", "coding"),
    [
        (gzip.compress(ZEROS), "gzip"),
        (zlib.compress(ZEROS), "deflate"),
        (gzip.compress(gzip.compress(ZEROS)), "gzip, gzip"),
        (gzip.compress(b'{"a":"' + ZEROS[:65_530] + b'"}'), "gzip"),
    ],
    ids=["gzip", "deflate", "twice", "just over"],
)
async def test_case_10_inflating_stops_at_the_cap(port: JudgedPort, bomb: bytes, coding: str) -> None:
    assert len(bomb) <= 65_536
    data = request(bomb, JSON, ("Content-Encoding", coding))
    tracemalloc.start()
    try:
        received = await port.receive(Kind("generic"), data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    recorded(received, "too_large: too_large")
    assert peak < 1_000_000


# 11 and 12. The cap.


def sized(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (request(sized(65_536), JSON), True),
        (request(sized(65_537), JSON), False),
        (request(b'{"a":"' + "€".encode() * 21_842 + b'xx"}', JSON), True),
        (request(b'{"a":"' + "€".encode() * 21_843 + b'"}', JSON), False),
        (request(b'{"a":"' + "\U0001f600".encode() * 16_382 + b'"}', JSON), True),
        (chunked(sized(65_536)), True),
        (chunked(sized(65_536)[:1], sized(65_536)[1:]), True),
        (chunked(sized(65_537)), False),
        (chunked(sized(65_536), b" "), False),
        (chunked(*[b" " * 4096] * 17), False),
    ],
    ids=[
        "cap",
        "one over",
        "3-byte",
        "3-byte over",
        "4-byte",
        "chunked",
        "chunks",
        "chunked over",
        "a space over",
        "many",
    ],
)
async def test_cases_11_and_12_the_cap_is_in_bytes_however_sent(port: JudgedPort, data: bytes, fits: bool) -> None:
    received = await port.receive(Kind("generic"), data)
    if fits:
        recorded(received, "asked")
        return
    assert received.said == TOO_LARGE
    assert received.outcomes == ["too_large: body"]
    assert received.record is not None and received.record.value == b""


# 13 to 18. What a body may be.


@pytest.mark.parametrize(
    ("body", "view", "changes"),
    [
        (rb'{"a":"x\u0000y","k\u0000":1}', {"a": "x\ufffdy", "k\ufffd": 1}, 2),
        (rb'{"a":{"b":["\u0000\u0000"]}}', {"a": {"b": ["\ufffd\ufffd"]}}, 1),
        (rb'{"a":"\\u0000"}', {"a": "\\u0000"}, 0),
        (rb'{"a":"\ud83d"}', {"a": "\ufffd"}, 1),
        (rb'{"a":"\ude00\ud83d"}', {"a": "\ufffd\ufffd"}, 1),
        (rb'{"\udc00":"\ud83dx\ud83d\ude00"}', {"\ufffd": "\ufffdx\U0001f600"}, 2),
        (rb'{"a":"\udbff\udfff"}', {"a": "\U0010ffff"}, 0),
        (rb'{"a":1e400,"b":1e131071}', {"a": "1e400", "b": "1e131071"}, 2),
        (rb'{"a":1,"a":2}', {"a": 2}, 1),
    ],
)
async def test_cases_13_and_14_what_cannot_be_stored_is_replaced(
    port: JudgedPort, body: bytes, view: object, changes: int
) -> None:
    received = await port.receive(Kind("generic"), request(body, JSON))
    recorded(received, "asked")
    (item,) = received.items
    assert (item.raw, item.view, len(item.changes)) == (body, view, changes)
    shown = json_text(item.view)
    assert "\x00" not in shown and shown.encode()


@pytest.mark.parametrize(
    ("body", "content_type", "view"),
    [
        (b'{"a":"caf\xe9"}', "application/json", None),
        (b'{"a":"caf\xe9"}', "application/json; charset=iso-8859-1", {"a": "café"}),
        (b'{"a":"caf\xe9"}', "text/plain", None),
        (b'{"a":"\xed\xa0\xbd"}', "application/json", None),
        (b'{"a":"\x80"}', "application/json;charset=Windows-1252", {"a": "€"}),
        (b'{"a":"\xc3"}', "application/json; charset=utf-8", None),
        ('{"a":"café"}'.encode("utf-16"), "application/json", {"a": "café"}),
        (b"a=caf%E9", "application/x-www-form-urlencoded", None),
        (b"a=caf%E9", "application/x-www-form-urlencoded; charset=latin1", {"a": "café"}),
    ],
)
async def test_case_15_charsets_are_honoured_and_never_guessed(
    port: JudgedPort, body: bytes, content_type: str, view: object
) -> None:
    received = await port.receive(Kind("generic"), request(body, ("Content-Type", content_type)))
    recorded(received, "undecodable: invalid_encoding" if view is None else "asked")
    assert view is None or received.view == view


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a":NaN}', "invalid_json"),
        (b'{"a":-Infinity}', "invalid_json"),
        (b"[1,NaN]", "invalid_json"),
        (b'{"a":0x10}', "invalid_json"),
        (b'{"a":+1}', "invalid_json"),
        (b"[" * 20_000 + b"]" * 20_000, "too_deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "too_deep"),
        (b"[" * 65_536, "too_deep"),
        (b'[{"a":' * 33 + b"1" + b"}]" * 33, "too_deep"),
        (b" \t\r\n ", "empty"),
        (b"null", "not_an_object"),
        (b"42", "not_an_object"),
        (b"true", "not_an_object"),
        (b'"text"', "not_an_object"),
    ],
)
async def test_cases_16_to_18_what_is_no_event_is_recorded_with_its_reason(
    port: JudgedPort, body: bytes, reason: str
) -> None:
    source = Kind("generic")
    recorded(await port.receive(source, request(body, JSON)), f"undecodable: {reason}")
    recorded(await port.receive(source, request(b'{"next":1}', JSON)), "asked")


@pytest.mark.parametrize("headers", [(), (JSON,), (FORM,), (("Content-Encoding", "gzip"),)])
async def test_case_18_an_empty_body_is_empty_whatever_it_says_it_is(
    port: JudgedPort, headers: Sequence[Header]
) -> None:
    recorded(await port.receive(Kind("generic"), request(b"", *headers)), "undecodable: empty")
    nothing = await port.receive(Kind("generic"), chunked())
    recorded(nothing, "undecodable: empty")


# 19. Expect.


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
async def test_case_19_a_body_is_waited_for_when_it_fits(port: JudgedPort, expect: str) -> None:
    body = sized(1024)
    data = request(body, JSON, ("Expect", expect))
    (first, final), (record,) = await port.exchange(data, answers=2)
    assert (first.status, final.status, final.body) == (100, 200, OK[1])
    assert record.value == body


@pytest.mark.parametrize("length", [10_000_000, 65_537])
async def test_case_19_no_body_is_asked_for_that_is_too_large(port: JudgedPort, length: int) -> None:
    head = post(b"", length=length, headers=(b"Expect: 100-continue",))
    (final,), (record,) = await port.exchange(head)
    assert (final.status, final.body) == TOO_LARGE
    assert final.headers["connection"] == "close"
    assert record.envelope.outcome == "too_large"


# 20. Confirmations of Amazon SNS.


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("SubscriptionConfirmation", "text/plain; charset=UTF-8"),
        ("UnsubscribeConfirmation", "text/plain"),
        ("SubscriptionConfirmation", "application/json"),
    ],
)
async def test_case_20_a_confirmation_is_recorded_and_nothing_more(
    port: JudgedPort, kind: str, content_type: str
) -> None:
    body = json.dumps({"Type": kind, "TopicArn": "arn:aws:sns:eu-west-1:1:t", "SubscribeURL": "https://a.example/?x"})
    headers = (("Content-Type", content_type), ("x-amz-sns-message-type", kind), ("x-amz-sns-message-id", "m1"))
    recorded(await port.receive(Kind("generic"), request(body.encode(), *headers)), "handshake")


async def test_case_20_a_notification_is_an_event(port: JudgedPort) -> None:
    body = b'{"Type":"Notification","TopicArn":"arn:aws:sns:eu-west-1:1:t","Message":"{\\"a\\":1}"}'
    headers = (("Content-Type", "text/plain; charset=UTF-8"), ("x-amz-sns-message-id", "m2"))
    source = Kind("generic")
    recorded(await port.receive(source, request(body, *headers)), "asked")
    recorded(await port.receive(source, request(body, *headers)), "duplicate")
