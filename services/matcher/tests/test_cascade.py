from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.contracts.source_config import AuthKeyCheck, Verify
from room_common.domain.batching import splits
from room_common.domain.decoding import Decoded, decode_payload
from room_common.domain.deliveries import Source
from room_common.domain.signing import sign_github, sign_hubspot, sign_stripe
from room_matcher.domain.cascade import (
    SAME_MOMENT,
    Accepted,
    Request,
    Stop,
    check_room,
    check_source,
    judge,
    lane_key,
    ledger_time,
    may_have_other_time,
    moment,
    surely_one_item,
    trace_id,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1_000_000)

SOURCE = Source(
    id=UUID(int=1),
    instance_id=UUID(int=2),
    name="orders",
    source_type="generic",
    enabled=True,
    deleted=False,
    config=None,
    token_encrypted=b"",
    valid_until=None,
    instance_active=True,
    instance_deleted=False,
    room_enabled=True,
    fast_model=None,
    definitions=(),
)


def request(
    body: bytes = b"{}", headers: dict[str, str] | None = None, *, too_large: bool = False, received_at_s: float = 0.0
) -> Request:
    return Request(body, "application/json", headers or {}, "", received_at_s or NOW.timestamp(), too_large)


@pytest.mark.parametrize(
    ("source", "stop"),
    [
        (None, Stop("unknown_token")),
        (replace(SOURCE, valid_until=NOW - timedelta(microseconds=1)), Stop("unknown_token", "expired")),
        (replace(SOURCE, valid_until=NOW), None),
        (replace(SOURCE, deleted=True), Stop("source_disabled", "deleted")),
        (replace(SOURCE, enabled=False), Stop("source_disabled")),
        (replace(SOURCE, enabled=False, valid_until=NOW - timedelta(1)), Stop("unknown_token", "expired")),
        (SOURCE, None),
    ],
)
def test_token_and_source_come_first(source: Source | None, stop: Stop | None) -> None:
    assert check_source(source, NOW) == stop


@pytest.mark.parametrize(
    ("change", "stop"),
    [
        ({}, None),
        ({"instance_deleted": True}, Stop("room_disabled", "instance_deleted")),
        ({"instance_active": False}, Stop("room_disabled", "paused")),
        ({"room_enabled": None}, Stop("room_disabled", "no_room")),
        ({"room_enabled": False}, Stop("room_disabled")),
    ],
)
def test_a_paused_instance_is_as_one_whose_room_is_disabled(change: dict[str, bool], stop: Stop | None) -> None:
    assert check_room(replace(SOURCE, **change)) == stop  # type: ignore[arg-type]


def test_size_comes_before_signature_and_signature_before_decoding() -> None:
    assert judge(request(too_large=True), "github", ("s",), split=False, uri="") == Stop("too_large", "body")
    assert judge(request(b"nonsense"), "github", ("s",), split=False, uri="") == Stop("bad_signature", "missing")
    signed = request(b"nonsense", sign_github(b"s", b"nonsense"))
    assert judge(signed, "github", ("s",), split=False, uri="") == Stop("undecodable", "invalid_json")


def test_a_body_that_inflates_past_the_limit_is_too_large() -> None:
    bomb = request(gzip.compress(b"[" + b" " * 70_000 + b"]"), {"content-encoding": "gzip"})
    assert judge(bomb, "generic", (), split=False, uri="") == Stop("too_large", "too_large")


def test_a_source_without_secrets_is_unverified_and_one_with_secrets_never_open() -> None:
    plain = judge(request(), "github", (), split=False, uri="")
    assert isinstance(plain, Accepted)
    assert not plain.verified
    signed = judge(request(headers=sign_github(b"s", b"{}")), "github", ("old", "s"), split=False, uri="")
    assert isinstance(signed, Accepted)
    assert signed.verified
    assert judge(request(), "generic", ("s",), split=False, uri="") == Stop("bad_signature", "unknown_scheme")


def test_a_check_without_a_secret_lets_nothing_in() -> None:
    check = Verify(auth_key=AuthKeyCheck())
    stop = judge(request(), "generic", (), split=False, uri="", check=check)
    assert isinstance(stop, Stop)
    assert stop.outcome == "bad_signature"


def test_the_age_of_a_signature_is_taken_at_the_receipt() -> None:
    body = b'{"id": "evt"}'
    headers = sign_stripe(b"s", body, timestamp_s=1_000_000)
    for received, accepted in ((1_000_300, True), (1_000_301, False), (999_700, True), (999_699, False)):
        verdict = judge(request(body, headers, received_at_s=received), "stripe", ("s",), split=False, uri="")
        assert isinstance(verdict, Accepted) == accepted
        assert accepted or verdict == Stop("bad_signature", "stale")


def test_an_array_is_split_and_its_signature_covers_the_public_address() -> None:
    body = b'[{"eventId": 1}, {"eventId": 2}]'
    uri = "https://room.example/webhooks/abc?a=1"
    milliseconds = int(NOW.timestamp() * 1000)
    headers = sign_hubspot(b"s", body, method="POST", uri=uri, timestamp_ms=milliseconds)
    verdict = judge(request(body, headers), "hubspot", ("s",), split=True, uri=uri)
    assert isinstance(verdict, Accepted)
    assert [item.raw for item in verdict.items] == [b'{"eventId": 1}', b'{"eventId": 2}']
    assert judge(request(body, headers), "hubspot", ("s",), split=True, uri=uri[:-1]) == Stop(
        "bad_signature", "mismatch"
    )


@pytest.mark.parametrize(
    ("kind", "switch", "expected"),
    [
        ("hubspot", None, True),
        (" HubSpot ", None, True),
        ("hubspot", False, False),
        ("github", None, False),
        ("generic", True, True),
    ],
)
def test_arrays_are_split_by_type_unless_the_source_says_otherwise(
    kind: str, switch: bool | None, expected: bool
) -> None:
    assert splits(kind, switch) is expected


def test_a_clock_that_is_too_far_ahead_gives_way_to_the_broker() -> None:
    appended_ms = NOW_US // 1000 - 300_000
    assert ledger_time(NOW_US, appended_ms) == NOW
    assert ledger_time(NOW_US, appended_ms - 1) == NOW - timedelta(milliseconds=300_001)
    assert ledger_time(NOW_US, -1) == NOW
    assert ledger_time(NOW_US, 0) == NOW
    assert ledger_time(NOW_US, NOW_US // 1000 + 10**9) == NOW


@given(st.integers(0, (1 << 53) - 1), st.integers(-1, 1 << 47))
def test_every_pair_of_clocks_gives_a_time(received_us: int, appended_ms: int) -> None:
    time = ledger_time(received_us, appended_ms)
    assert time.tzinfo is UTC
    assert time == ledger_time(received_us, appended_ms)
    if appended_ms >= 1:
        assert time - moment(appended_ms * 1000) <= timedelta(minutes=5)


@given(st.integers(1, 3_600_000), st.integers(0, 7_200_000), st.integers(-2000, 2000))
def test_of_two_copies_with_two_times_the_later_one_is_looked_up(ahead_ms: int, apart_ms: int, near_ms: int) -> None:
    """But for one that comes when a clock that is ahead has just been caught up with."""
    for first_ms in (NOW_US // 1000 - ahead_ms, NOW_US // 1000 - apart_ms + near_ms):
        second_ms = first_ms + apart_ms
        if ledger_time(NOW_US, first_ms) == ledger_time(NOW_US, second_ms):
            continue
        late = timedelta(milliseconds=second_ms) - timedelta(microseconds=NOW_US)
        assert may_have_other_time(NOW_US, second_ms) or abs(late) <= SAME_MOMENT


def test_a_copy_on_time_is_not_looked_up() -> None:
    appended_ms = NOW_US // 1000
    assert not may_have_other_time(NOW_US, appended_ms)
    assert not may_have_other_time(NOW_US, appended_ms + 1000)
    assert may_have_other_time(NOW_US, appended_ms + 1001)
    assert may_have_other_time(NOW_US, appended_ms - 1001)
    assert not may_have_other_time(NOW_US, 0)


@pytest.mark.parametrize("header", [None, "", "00-xyz", "00-" + "A" * 32 + "-" + "b" * 16 + "-01"])
def test_what_is_no_traceparent_gives_no_trace(header: str | None) -> None:
    assert trace_id(header) is None


def test_a_traceparent_gives_its_trace() -> None:
    assert trace_id("00-" + "a" * 32 + "-" + "b" * 16 + "-01") == "a" * 32


ENCODINGS = st.sampled_from([{}, {"content-encoding": "gzip"}, {"content-type": "text/plain"}])
ARRAYS = ["[1]", " [{}, {}]", "payload=%5B1%2C2%5D", "a=1&payload=%5b{}%5d", "payload=[{},{}]", "{}", "null", "a=b"]
CHARSETS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "shift_jis", "iso2022_jp", "gb18030", "koi8-r"]
BODIES = (
    st.binary(max_size=60)
    | st.sampled_from([b"", b"  {}", b"{}", b"null   "])
    | st.builds(str.encode, st.sampled_from(ARRAYS), st.sampled_from(CHARSETS))
    | st.text("payload=[]{}1,%5BD&+ ", max_size=20).map(str.encode)
)
TYPES = st.sampled_from(
    [None, "application/json", "application/x-www-form-urlencoded", "text/plain", "text/plain; charset=utf-16"]
    + [f"application/x-www-form-urlencoded; charset={charset}" for charset in CHARSETS]
)


@given(BODIES, TYPES, ENCODINGS)
def test_what_is_surely_one_item_is_never_split(body: bytes, kind: str | None, headers: dict[str, str]) -> None:
    decoded = decode_payload(body, kind, headers, split=True)
    if surely_one_item(body, headers) and isinstance(decoded, Decoded):
        assert [item.sliced for item in decoded.items] == [False]


@pytest.mark.parametrize("body", [b"null   ", b"name=Ada&note=x", b"<a/>", b"{", b"true"])
def test_without_a_bracket_there_is_one_item(body: bytes) -> None:
    assert surely_one_item(body, {})
    assert not surely_one_item(body, {"content-encoding": "gzip"})


def test_copies_share_a_lane_and_others_do_not() -> None:
    token, other = b"a" * 32, b"b" * 32
    assert lane_key(token, {}, b"x") == lane_key(token, {"user-agent": "y"}, b"x")
    assert lane_key(token, {}, b"x") != lane_key(token, {}, b"y")
    assert lane_key(token, {}, b"x") != lane_key(other, {}, b"x")
    by_id = {"x-github-delivery": "1"}
    assert lane_key(token, by_id, b"x") == lane_key(token, by_id, b"y")
    assert lane_key(token, by_id, b"x") != lane_key(token, {"webhook-id": "1"}, b"x")


@given(st.dictionaries(st.sampled_from(["x-github-delivery", "webhook-id"]), st.text()), st.binary())
def test_every_request_has_a_lane(headers: dict[str, str], body: bytes) -> None:
    assert len(lane_key(b"t" * 32, headers, body)) == 32


def test_a_replay_may_be_old_and_its_token_expired() -> None:
    old = sign_stripe(b"k", b"{}", timestamp_s=1000)
    late = request(headers=old, received_at_s=9000.0)
    assert judge(late, "stripe", ("k",), split=False, uri="") == Stop("bad_signature", "stale")
    accepted = judge(replace(late, replayed=True), "stripe", ("k",), split=False, uri="")
    assert isinstance(accepted, Accepted) and accepted.verified
    source = replace(SOURCE, valid_until=NOW - timedelta(days=1))
    assert check_source(source, NOW) == Stop("unknown_token", "expired")
    assert check_source(source, NOW, replayed=True) is None


def test_a_forced_replay_is_let_in_unverified() -> None:
    forged = replace(request(headers={"stripe-signature": "t=1,v1=" + "0" * 64}), replayed=True)
    assert judge(forged, "stripe", ("k",), split=False, uri="") == Stop("bad_signature", "mismatch")
    accepted = judge(replace(forged, forced=True), "stripe", ("k",), split=False, uri="")
    assert isinstance(accepted, Accepted) and not accepted.verified
    signed = replace(forged, headers=sign_stripe(b"k", b"{}", timestamp_s=1), forced=True)
    accepted = judge(signed, "stripe", ("k",), split=False, uri="")
    assert isinstance(accepted, Accepted) and accepted.verified
