"""The pure rules, over any bytes."""

from __future__ import annotations

import re
from binascii import hexlify
from hashlib import sha256
from typing import get_args
from urllib.parse import quote_from_bytes

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.contracts.envelope import (
    HASHED_HEADERS,
    KEPT_HEADERS,
    MAX_HEADER_VALUE,
    Envelope,
    carries_secret,
    carries_signature,
    decode,
)
from room_common.domain.ids import uuid7
from room_common.kafka.records import Record
from room_ingest.domain.handshakes import (
    MAX_ECHO,
    WrongVerifyToken,
    graph_validation,
    hub_challenge,
    slack_challenge,
)
from room_ingest.domain.limits import TokenBucket
from room_ingest.domain.request_headers import (
    Kept,
    id_text,
    keep,
    new_traceparent,
    plan,
    record_headers,
    token_header,
)
from room_ingest.domain.routes import Route, RouteName, parse_target
from room_testing.webhook_port import plain_parcel, read_records

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
header_names = st.sampled_from([name.encode() for name in KEPT_HEADERS | HASHED_HEADERS | {"traceparent", "cookie"}])
headers = st.lists(st.tuples(header_names | st.binary(max_size=20), st.binary(max_size=60)), max_size=12)


def kept_of(fields: list[tuple[bytes, bytes]]) -> Kept:
    return keep(plan(tuple(name for name, _ in fields)), [value for _, value in fields])


@given(st.binary(max_size=200) | st.builds(lambda rest: b"/webhooks/" + rest, st.binary(max_size=80)))
def test_any_target_is_a_route_or_none(target: bytes) -> None:
    route = parse_target(target)
    if route is not None:
        assert route.name in get_args(RouteName)
        assert route.token and b"/" not in route.token
        assert route.token in target


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (b"/webhooks/abc", Route("webhooks", b"abc", b"")),
        (b"/webhooks/abc/", Route("webhooks", b"abc", b"")),
        (b"/webhooks/abc?x=/y/", Route("webhooks", b"abc", b"x=/y/")),
        (b"/channels/local/abc", Route("channels", b"abc", b"", "local")),
        (b"https://a.test:1/webhooks/abc?q", Route("webhooks", b"abc", b"q")),
        (b"HTTP://a.test/channels/local/abc/", Route("channels", b"abc", b"", "local")),
        (b"http://a.test", None),
        (b"http://http://a/webhooks/abc", None),
        (b"/webhooks/abc//", None),
        (b"/webhooks//", None),
        (b"/channels/pigeon/abc", None),
        (b"*", None),
        (b"", None),
    ],
)
def test_targets(target: bytes, route: Route | None) -> None:
    assert parse_target(target) == route


@given(headers, st.binary(max_size=60))
def test_any_headers_become_an_envelope(fields: list[tuple[bytes, bytes]], query: bytes) -> None:
    made = record_headers(
        kept_of(fields),
        token=token_header(sha256(b"t").digest()),
        received_at_us=1_700_000_000_123_456,
        randomness=bytes(range(32)),
        query=query,
        too_large=False,
        channel=b"",
    )
    (record,) = read_records([plain_parcel(made)])
    envelope = decode(Record("t", 0, 0, 0, b"", b"", tuple(record.headers)))
    assert envelope.token_sha256 == sha256(b"t").digest()
    assert envelope.received_at_us == 1_700_000_000_123_456
    assert all(name in KEPT_HEADERS or carries_secret(name) or carries_signature(name) for name in envelope.http)
    assert all(len(value) <= MAX_HEADER_VALUE for value in envelope.http.values())
    for name, value in envelope.http.items():
        if carries_secret(name):
            assert re.fullmatch(r"((basic|bearer|token|apikey) )?sha256:[0-9a-f]{64}", value)


def test_an_envelope_carries_what_is_allowed_and_nothing_else() -> None:
    fields = [
        (b"host", b"h"),
        (b"content-type", b"text/caf\xe9"),
        (b"authorization", b"Bearer s3cret"),
        (b"cookie", b"s3cret"),
        (b"x-github-event", b"push"),
        (b"stripe-signature", b"a"),
        (b"stripe-signature", b"b"),
        (b"user-agent", b"u" * 5000),
        (b"traceparent", TRACE),
    ]
    made = record_headers(
        kept_of(fields),
        token=token_header(b"\xab" * 32),
        received_at_us=7,
        randomness=bytes(32),
        query=b"a=b",
        too_large=True,
        channel=b"local",
    )
    assert b"s3cret" not in made
    (record,) = read_records([plain_parcel(made)])
    assert decode(Record("t", 0, 0, 0, b"", b"", tuple(record.headers))) == Envelope(
        id=uuid7(7, bytes(8)),
        token_sha256=b"\xab" * 32,
        received_at_us=7,
        content_type="text/café",
        http={
            "content-type": "text/café",
            "authorization": f"bearer sha256:{sha256(b's3cret').hexdigest()}",
            "x-github-event": "push",
            "stripe-signature": "a, b",
            "user-agent": "u" * MAX_HEADER_VALUE,
        },
        query="a=b",
        outcome="too_large",
        traceparent=TRACE.decode(),
        channel="local",
    )


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        (b"X-GitLab-Token", b"s3cret", f"sha256:{sha256(b's3cret').hexdigest()}"),
        (b"x-acme-token", b"s3cret", f"sha256:{sha256(b's3cret').hexdigest()}"),
        (b"x-signature-key", b"s3cret", f"sha256:{sha256(b's3cret').hexdigest()}"),
        (b"authorization", b"bEARER  s3cret", f"bearer sha256:{sha256(b's3cret').hexdigest()}"),
        (b"authorization", b"hunter2 s3cret", f"sha256:{sha256(b'hunter2 s3cret').hexdigest()}"),
        (b"authorization", b"Bearer", f"sha256:{sha256(b'Bearer').hexdigest()}"),
        (b"authorization", b"Bearer  ", f"sha256:{sha256(b'Bearer').hexdigest()}"),
        (b"x-api-key", b"Bearer s3cret", f"sha256:{sha256(b'Bearer s3cret').hexdigest()}"),
        (b"x-acme-signature", b"sha256=00", "sha256=00"),
        (b"x-acme-hmac-sha256", b"\xe9", "é"),
        (b"idempotency-key", b"k1", "k1"),
        (b"x-github-event", b"push \t ", "push"),
        (b"x-acme-signature", b"00 ", "00"),
        (b"x-api-key", b"s3cret\t", f"sha256:{sha256(b's3cret').hexdigest()}"),
        (b"x-acme", b"s3cret", None),
        (b"x" * 60 + b"-signature", b"s3cret", None),
        (b"cookie", b"s3cret", None),
    ],
)
def test_secrets_are_hashed_and_signatures_kept_whoever_names_them(name: bytes, value: bytes, kept: str | None) -> None:
    expected = {} if kept is None else {name.decode().lower(): kept}
    assert orjson.loads(kept_of([(name, value)]).http) == expected


framing = st.sampled_from([b"Host", b"CONTENT-LENGTH", b"Transfer-Encoding", b"expect", b"X-GitHub-Event", b"x" * 70])


@given(st.lists(framing | header_names | st.binary(max_size=20), max_size=12), st.sampled_from([0, 60, 3000]))
def test_what_names_say_is_the_same_remembered_or_not(few: list[bytes], more: int) -> None:
    names = tuple([*few, *[b"y"] * more])
    lower = [name.lower() for name in names]
    for planned in (plan(names), plan(names)):
        assert planned.hosts == lower.count(b"host")
        assert planned.codings == [place for place, name in enumerate(lower) if name == b"transfer-encoding"]
        for place, name in ((planned.length, b"content-length"), (planned.expect, b"expect")):
            assert place == max((at for at, found in enumerate(lower) if found == name), default=-1)
        assert planned.size == sum(len(name) + 4 for name in names)
        assert [name for _, _, name in planned.kept] == [lower[place].decode("latin-1") for place, _, _ in planned.kept]


@pytest.mark.parametrize(
    ("names", "remembered"),
    [((b"a",) * 64, True), ((b"a",) * 65, False), ((b"a" * 2048,), True), ((b"a" * 2049,), False)],
)
def test_only_few_and_short_names_are_remembered(names: tuple[bytes, ...], remembered: bool) -> None:
    assert (plan(names) is plan(names)) is remembered


@given(st.integers(0, 1 << 52), st.binary(min_size=8, max_size=32))
def test_ids_are_the_common_ones(unix_us: int, randomness: bytes) -> None:
    assert id_text(unix_us, hexlify(randomness)).decode() == str(uuid7(unix_us, randomness))


@given(st.binary(max_size=70))
def test_only_a_valid_trace_is_continued(value: bytes) -> None:
    assert kept_of([(b"traceparent", value)]).traceparent is None
    assert kept_of([(b"traceparent", TRACE)]).traceparent == TRACE
    for wrong in (TRACE + b"\n", TRACE.upper(), b"01" + TRACE[2:], b"00-" + b"0" * 32 + TRACE[35:]):
        assert kept_of([(b"traceparent", wrong)]).traceparent is None
    new = new_traceparent(bytes(range(24)).hex().encode())
    assert kept_of([(b"traceparent", new)]).traceparent == new


@given(st.binary(max_size=3000) | st.binary(max_size=100).map(lambda end: b'{"type":"url_verification"' + end))
def test_slack_handshakes_are_total(body: bytes) -> None:
    assert slack_challenge(body) is None


@given(st.text(min_size=1, max_size=80))
def test_a_slack_handshake_is_echoed(challenge: str) -> None:
    value = {"type": "url_verification", "challenge": challenge, "token": "t"}
    body = orjson.dumps(value)
    assert slack_challenge(body) == challenge.encode()
    assert slack_challenge(orjson.dumps({"type": "url_verification", "challenge": challenge})) == challenge.encode()
    assert slack_challenge(orjson.dumps({**value, "more": 1})) is None
    assert slack_challenge(orjson.dumps({**value, "type": "event", "token": "url_verification"})) is None
    assert slack_challenge(orjson.dumps([value])) is None
    assert slack_challenge(body + b" " * 2048) is None


@pytest.mark.parametrize("challenge", ["", "x" * (MAX_ECHO + 1), 1, None, ["a"], {"a": 1}])
def test_what_is_no_challenge_is_an_event(challenge: object) -> None:
    assert slack_challenge(orjson.dumps({"type": "url_verification", "challenge": challenge, "token": "t"})) is None


@given(st.binary(min_size=1, max_size=100))
def test_a_graph_validation_is_decoded_and_echoed(text: bytes) -> None:
    query = b"a=1&validationToken=" + quote_from_bytes(text, safe="").encode()
    assert graph_validation(query, b"") == text
    assert graph_validation(query, b"{}") is None
    assert graph_validation(b"validationToken=a+b%3A%20c", b"") == b"a b: c"


@given(st.binary(max_size=100))
def test_hub_challenges(text: bytes) -> None:
    assert graph_validation(text, b"") is None
    try:
        assert hub_challenge(text, b"T") is None
    except WrongVerifyToken:
        assert b"challenge" in text
    query = b"hub.mode=subscribe&hub.challenge=123&hub.verify_token="
    assert hub_challenge(query + b"T", b"T") == b"123"
    assert hub_challenge(b"hub.topic=x&hub.challenge=123", b"T") == b"123"
    for wrong in (query + b"t", query, b"hub.challenge=1", b"hub.topic=x&" + query + b"U"):
        with pytest.raises(WrongVerifyToken):
            hub_challenge(wrong, b"T")
    assert hub_challenge(b"hub.challenge=" + b"x" * 2000, b"T") is None


@given(st.lists(st.floats(-1, 10, allow_nan=False), max_size=50), st.floats(0.1, 50), st.integers(1, 20))
def test_a_bucket_never_lets_more_through_than_burst_and_rate(steps: list[float], rate: float, burst: int) -> None:
    now = latest = 100.0
    bucket = TokenBucket(rate, burst, now)
    taken = 0
    for step in steps:
        now += step
        latest = max(latest, now)
        taken += bucket.take(now)
        assert taken <= burst + (latest - 100.0) * rate + 1e-6


def test_a_bucket_refills_and_zero_is_no_limit() -> None:
    bucket = TokenBucket(2, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(1.0) for _ in range(3)] == [True, True, False]
    assert all(TokenBucket(0, 1, 0.0).take(0.0) for _ in range(100))
