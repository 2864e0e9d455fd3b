"""Signatures against the providers' published vectors and libraries."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stripe import WebhookSignature

from room_common.domain.signing import hubspot_uri, sign_github, sign_hubspot, sign_stripe


def test_github_signs_as_its_documentation_does() -> None:
    headers = sign_github(b"It's a Secret to Everybody", b"Hello, World!")
    expected = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert headers == {"x-hub-signature-256": f"sha256={expected}"}


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (1693657560000, "K36dawei4A+QBNolUOqo7s91KQDWQ5MXZ/QufNYuk/Y="),
        (1700000300000, "RnbPH7+UMKVkbV32P8bz450N4M56aPmcru1+D3kSDtw="),
    ],
    ids=["python library", "ruby library"],
)
def test_hubspot_signs_as_its_libraries_test(timestamp_ms: int, expected: str) -> None:
    headers = sign_hubspot(
        b"yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy",
        b"{'example_field':'example_value'}",
        method="POST",
        uri="https://www.example.com/webhook_uri",
        timestamp_ms=timestamp_ms,
    )
    assert headers == {"x-hubspot-signature-v3": expected, "x-hubspot-request-timestamp": str(timestamp_ms)}


@settings(deadline=None, max_examples=50)
@given(secret=st.text(min_size=1), body=st.text(), timestamp=st.integers(0, 10**11))
def test_stripe_signs_as_its_library_does(secret: str, body: str, timestamp: int) -> None:
    headers = sign_stripe(secret.encode(), body.encode(), timestamp_s=timestamp)
    assert headers == {"stripe-signature": WebhookSignature.generate_signature_header(body, secret, timestamp)}


@pytest.mark.parametrize(
    ("uri", "signed"),
    [
        ("https://a.example/webhooks/t?x=1", "https://a.example/webhooks/t?x=1"),
        ("https://a.example/%3A%2F%3F%40%21%24%27%28%29%2A%2C%3B", "https://a.example/:/?@!$'()*,;"),
        ("https://a.example/%3a%2f", "https://a.example/:/"),
        ("https://a.example/%20%26%3D%25%C3%A9", "https://a.example/%20%26%3D%25%C3%A9"),
        ("https://a.example/%253A", "https://a.example/%253A"),
        ("%", "%"),
    ],
)
def test_hubspot_decodes_twelve_escapes_once(uri: str, signed: str) -> None:
    assert hubspot_uri(uri) == signed
    timestamp = "1700000000000"
    headers = sign_hubspot(b"s", b"{}", method="POST", uri=uri, timestamp_ms=int(timestamp))
    mac = hmac.new(b"s", f"POST{signed}{{}}{timestamp}".encode(), hashlib.sha256).digest()
    assert headers["x-hubspot-signature-v3"].encode() == base64.b64encode(mac)
