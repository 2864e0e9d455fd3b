"""Signatures of GitHub, Stripe and HubSpot and what all schemes share; the providers' libraries are the judges."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Mapping
from urllib.parse import quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stripe import SignatureVerificationError, WebhookSignature

from room_common.domain.credentials import hashed_credential
from room_common.domain.signing import (
    sign_github,
    sign_hubspot,
    sign_shopify,
    sign_slack,
    sign_standard,
    sign_stripe,
)
from room_matcher.domain.signatures import SCHEMES, Problem, Signed, verify

NOW = 1_790_000_000
URI = "https://hooks.example.com/webhooks/0123abcd"
SECRET = b"whsec_Y3VycmVudA=="
OLD = b"whsec_cHJldmlvdXM="
OTHER = b"whsec_b3RoZXI="


def signed(
    headers: Mapping[str, str], body: bytes, *, received_at_s: float = NOW, uri: str = URI, method: str = "POST"
) -> Signed:
    return Signed(method, uri, headers, body, received_at_s)


def problem(scheme: str, request: Signed, *secrets: bytes, check_age: bool = True) -> Problem | None:
    verification = verify(scheme, secrets or (SECRET,), request, check_age=check_age)
    assert verification.verified is (verification.problem is None)
    return verification.problem


def make(scheme: str, body: bytes, *, secret: bytes = SECRET, at: int = NOW) -> dict[str, str]:
    if scheme == "github":
        return sign_github(secret, body)
    if scheme == "stripe":
        return sign_stripe(secret, body, timestamp_s=at)
    if scheme == "slack":
        return sign_slack(secret, body, timestamp_s=at)
    if scheme == "shopify":
        return sign_shopify(secret, body)
    if scheme == "gitlab":
        return {"x-gitlab-token": hashed_credential("x-gitlab-token", secret)}
    if scheme == "standard":
        return sign_standard(secret, body, message_id="msg_1", timestamp_s=at)
    return sign_hubspot(secret, body, method="POST", uri=URI, timestamp_ms=at * 1000)


# GitHub: received bytes, whatever they are.

PUSH = b'{ "ref":"refs/heads/main" ,"pusher" : {"name":"Ren\\u00e9"}}'


def test_github_signs_the_bytes_as_received() -> None:
    headers = sign_github(SECRET, PUSH)
    assert problem("github", signed(headers, PUSH)) is None
    assert problem("github", signed(headers, PUSH.replace(b"{ ", b"{", 1))) is Problem.MISMATCH
    assert problem("github", signed(headers, json.dumps(json.loads(PUSH)).encode())) is Problem.MISMATCH


def test_github_signs_a_form_as_a_form() -> None:
    body = b"payload=" + quote_plus(PUSH).encode()
    assert problem("github", signed(sign_github(SECRET, body), body)) is None
    assert problem("github", signed(sign_github(SECRET, PUSH), body)) is Problem.MISMATCH


def test_a_signature_is_over_the_compressed_bytes() -> None:
    body = gzip.compress(PUSH)
    assert problem("github", signed(sign_github(SECRET, body), body)) is None
    assert problem("github", signed(sign_github(SECRET, PUSH), body)) is Problem.MISMATCH


def test_github_as_documented() -> None:
    header = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert problem("github", signed(header, b"Hello, World!"), b"It's a Secret to Everybody") is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Problem.MISSING),
        ("", Problem.MISSING),
        ("sha256=", Problem.MALFORMED),
        ("sha1=" + "0" * 40, Problem.MALFORMED),
        ("0" * 64, Problem.MALFORMED),
        ("sha256=" + "0" * 63, Problem.MALFORMED),
        ("sha256=" + "0" * 65, Problem.MALFORMED),
        ("sha256=" + "g" * 64, Problem.MALFORMED),
        ("sha256=" + "\uff10" * 64, Problem.MALFORMED),
        ("sha256=" + "0" * 64 + "\n", Problem.MISMATCH),
        ("sha256=" + "0" * 64 + ", sha256=" + "0" * 64, Problem.MALFORMED),
        ("sha256=" + "0" * 64, Problem.MISMATCH),
    ],
)
def test_github_headers_that_prove_nothing(header: str | None, expected: Problem) -> None:
    headers = {} if header is None else {"x-hub-signature-256": header}
    assert problem("github", signed(headers, PUSH)) is expected


def test_the_old_sha1_header_alone_is_not_enough() -> None:
    assert problem("github", signed({"x-hub-signature": "sha1=" + "0" * 40}, PUSH)) is Problem.MISSING


# Stripe: several values, and age.

EVENT = b'{"id":"evt_1","type":"invoice.paid","data":{"object":{"customer_name":"Ren\xc3\xa9"}}}'


def test_stripe_with_the_right_value_second() -> None:
    right = sign_stripe(SECRET, EVENT, timestamp_s=NOW)["stripe-signature"]
    time_part, value = right.split(",")
    header = f"{time_part},v1={'0' * 64},{value},v0={'1' * 64}"
    assert problem("stripe", signed({"stripe-signature": header}, EVENT)) is None


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, None), (300, None), (301, Problem.STALE), (20 * 60, Problem.STALE), (-300, None), (-301, Problem.STALE)],
)
@pytest.mark.parametrize("scheme", ["stripe", "hubspot", "slack", "standard"])
def test_age_is_counted_from_receipt(scheme: str, age: int, expected: Problem | None) -> None:
    request = signed(make(scheme, EVENT, at=NOW - age), EVENT)
    assert problem(scheme, request) is expected
    assert problem(scheme, request, check_age=False) is None


def test_a_record_judged_years_later_is_judged_the_same() -> None:
    assert abs(time.time() - 1_000_000_000) > 300
    request = signed(make("stripe", EVENT, at=1_000_000_000), EVENT, received_at_s=1_000_000_010.5)
    assert problem("stripe", request) is None


def test_a_wrong_signature_is_a_mismatch_even_if_old() -> None:
    request = signed(make("stripe", EVENT, at=NOW - 5000, secret=b"other"), EVENT)
    assert problem("stripe", request) is Problem.MISMATCH
    assert problem("stripe", request, check_age=False) is Problem.MISMATCH


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Problem.MISSING),
        ("t=1790000000", Problem.MALFORMED),
        ("v1=" + "0" * 64, Problem.MALFORMED),
        ("t=1790000000,v1=", Problem.MALFORMED),
        ("t=1790000000,v1=xyz", Problem.MALFORMED),
        ("t=1790000000,v0=" + "0" * 64, Problem.MALFORMED),
        ("t=,v1=" + "0" * 64, Problem.MALFORMED),
        ("t=-1,v1=" + "0" * 64, Problem.MALFORMED),
        ("t=1e9,v1=" + "0" * 64, Problem.MALFORMED),
        ("t=\u0661\u0662,v1=" + "0" * 64, Problem.MALFORMED),
        ("t=" + "9" * 400 + ",v1=" + "0" * 64, Problem.MALFORMED),
        ("t=1790000000,t=1790000000,v1=" + "0" * 64, Problem.MALFORMED),
        ("t=1790000000;v1=" + "0" * 64, Problem.MALFORMED),
        (",,,", Problem.MALFORMED),
        ("t=1790000000" + ",v1=" + "0" * 64 + ",v1=0" * 5000, Problem.MALFORMED),
        ("t=1790000000,v1=" + "0" * 64, Problem.MISMATCH),
    ],
)
def test_stripe_headers_that_prove_nothing(header: str, expected: Problem) -> None:
    assert problem("stripe", signed({"stripe-signature": header}, EVENT)) is expected


@settings(deadline=None, max_examples=100)
@given(
    body=st.text(max_size=30),
    secret=st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=20),
    offset=st.integers(-290, 290),
    flip=st.sampled_from([None, "body", "secret", "time", "value"]),
)
def test_stripe_agrees_with_its_library(body: str, secret: str, offset: int, flip: str | None) -> None:
    now = int(time.time())
    header = WebhookSignature.generate_signature_header(body, secret, now + offset)
    if flip == "time":
        header = header.replace(f"t={now + offset}", f"t={now + offset + 1}")
    if flip == "value":
        header = header[:-1] + ("0" if header[-1] != "0" else "1")
    tried_body = body + " " if flip == "body" else body
    tried_secret = secret + "x" if flip == "secret" else secret
    try:
        library = WebhookSignature.verify_header(tried_body, header, tried_secret, 300)
    except SignatureVerificationError:
        library = False
    request = signed({"stripe-signature": header}, tried_body.encode(), received_at_s=now)
    assert verify("stripe", [tried_secret.encode()], request).verified is library
    assert library is (flip is None)


# HubSpot: method, address, body and time.

BATCH = json.dumps([{"eventId": number, "subscriptionType": "deal.propertyChange"} for number in range(100)]).encode()


def test_hubspot_signs_a_whole_batch() -> None:
    headers = make("hubspot", BATCH)
    assert problem("hubspot", signed(headers, BATCH)) is None
    assert problem("hubspot", signed(headers, BATCH[:-1])) is Problem.MISMATCH
    assert problem("hubspot", signed(headers, BATCH, uri=URI + "/")) is Problem.MISMATCH
    assert problem("hubspot", signed(headers, BATCH, uri=URI.replace("https", "http"))) is Problem.MISMATCH
    assert problem("hubspot", signed(headers, BATCH, method="PUT")) is Problem.MISMATCH
    moved = headers | {"x-hubspot-request-timestamp": str(NOW * 1000 + 1)}
    assert problem("hubspot", signed(moved, BATCH)) is Problem.MISMATCH


@pytest.mark.parametrize(
    ("timestamp", "signature"),
    [
        ("1693657560000", "K36dawei4A+QBNolUOqo7s91KQDWQ5MXZ/QufNYuk/Y="),
        ("1700000300000", "RnbPH7+UMKVkbV32P8bz450N4M56aPmcru1+D3kSDtw="),
    ],
)
def test_hubspot_vectors(timestamp: str, signature: str) -> None:
    request = Signed(
        "POST",
        "https://www.example.com/webhook_uri",
        {"x-hubspot-signature-v3": signature, "x-hubspot-request-timestamp": timestamp},
        b"{'example_field':'example_value'}",
        int(timestamp) / 1000 + 1,
    )
    assert problem("hubspot", request, b"yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy") is None


@pytest.mark.parametrize("query", ["?to=a%40b.example%3Fx%2Fy", "?a=%20b%26c", "?plain=1", ""])
def test_hubspot_addresses_are_verified_decoded_or_as_they_are(query: str) -> None:
    headers = sign_hubspot(SECRET, b"[]", method="POST", uri=URI + query, timestamp_ms=NOW * 1000)
    assert problem("hubspot", signed(headers, b"[]", uri=URI + query)) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"x-hubspot-signature-v3": ""}, Problem.MISSING),
        ({"x-hubspot-request-timestamp": ""}, Problem.MISSING),
        ({"x-hubspot-request-timestamp": "now"}, Problem.MALFORMED),
        ({"x-hubspot-request-timestamp": "-1"}, Problem.MALFORMED),
        ({"x-hubspot-request-timestamp": "1" * 400}, Problem.MALFORMED),
        ({"x-hubspot-request-timestamp": "\u0661"}, Problem.MALFORMED),
        ({"x-hubspot-signature-v3": "x"}, Problem.MALFORMED),
        ({"x-hubspot-signature-v3": "é" * 44}, Problem.MALFORMED),
        ({"x-hubspot-signature-v3": base64.b64encode(b"0" * 31).decode()}, Problem.MALFORMED),
        ({"x-hubspot-signature-v3": base64.b64encode(b"0" * 32).decode()}, Problem.MISMATCH),
    ],
)
def test_hubspot_headers_that_prove_nothing(changed: dict[str, str], expected: Problem) -> None:
    assert problem("hubspot", signed(make("hubspot", BATCH) | changed, BATCH)) is expected


def test_the_older_hubspot_header_is_not_looked_at() -> None:
    assert problem("hubspot", signed({"x-hubspot-signature": "0" * 64}, BATCH)) is Problem.MISSING


# All schemes.


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_any_of_several_secrets_may_have_signed(scheme: str) -> None:
    for secret in (SECRET, OLD):
        request = signed(make(scheme, EVENT, secret=secret), EVENT)
        assert problem(scheme, request, SECRET, OLD) is None
        assert problem(scheme.upper(), request, OLD, SECRET) is None
    assert problem(scheme, signed(make(scheme, EVENT, secret=OTHER), EVENT), SECRET, OLD) is Problem.MISMATCH


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_without_a_secret_nothing_is_verified(scheme: str) -> None:
    request = signed(make(scheme, EVENT), EVENT)
    assert verify(scheme, [], request).problem is Problem.UNSECURED
    assert verify(scheme, [b""], request).problem is Problem.UNSECURED
    if scheme != "standard":
        empty = signed(make(scheme, EVENT, secret=b""), EVENT)
        assert verify(scheme, [b""], empty).problem is Problem.UNSECURED


def test_a_scheme_nobody_knows_is_not_verified() -> None:
    assert problem("generic", signed({}, EVENT)) is Problem.UNKNOWN_SCHEME


def test_requests_do_not_show_their_content() -> None:
    shown = repr(signed(make("stripe", EVENT), EVENT))
    assert "evt_1" not in shown
    assert "v1=" not in shown
    assert "0123abcd" not in shown
