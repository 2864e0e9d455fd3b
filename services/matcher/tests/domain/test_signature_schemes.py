"""Slack, Shopify, Standard Webhooks, GitLab and generic sources; libraries and published vectors are the judges."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.signature import Clock, SignatureVerifier
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify
from room_common.domain.credentials import hashed_credential
from room_common.domain.signing import Algorithm, Encoding, sign_generic, sign_shopify, sign_slack, sign_standard
from room_matcher.domain.signatures import SCHEMES, Problem, Signed, verify

NOW = 1_790_000_000
BODY = b'{"id":"x","name":"Ren\xc3\xa9"}'
SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def problem(
    scheme: str,
    headers: Mapping[str, str],
    *secrets: bytes,
    body: bytes = BODY,
    at: float = NOW,
    check: Verify | None = None,
) -> Problem | None:
    signed = Signed("POST", "https://hooks.example.com/webhooks/0123", headers, body, at)
    return verify(scheme, secrets or (SECRET,), signed, check=check).problem


# Slack.


def test_slack_as_documented() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
        b"foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
        b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015."
        b"47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    secret = b"8f742231b10e8888abcd99yyyzzz85a5"
    assert problem("slack", headers, secret, body=body, at=1531420618) is None
    assert problem("slack", headers, secret, body=body + b"&", at=1531420618) is Problem.MISMATCH
    assert problem("slack", headers, secret, body=body, at=1531420618 + 301) is Problem.STALE


class At(Clock):
    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


@settings(deadline=None, max_examples=100)
@given(
    text=st.text(st.characters(codec="utf-8"), max_size=30),
    secret=st.text(st.characters(codec="utf-8"), max_size=20).filter(str.strip),
    age=st.integers(-400, 400),
    flip=st.sampled_from([None, "body", "secret", "time", "value"]),
)
def test_slack_agrees_with_its_library(text: str, secret: str, age: int, flip: str | None) -> None:
    body = text.encode()
    headers = sign_slack(secret.encode(), body, timestamp_s=NOW - age)
    if flip == "time":
        headers["x-slack-request-timestamp"] = str(NOW - age + 1)
    if flip == "value":
        value = headers["x-slack-signature"]
        headers["x-slack-signature"] = value[:-1] + ("0" if value[-1] != "0" else "1")
    tried_body = body + b" " if flip == "body" else body
    tried_secret = secret + "x" if flip == "secret" else secret
    library = SignatureVerifier(tried_secret, At(NOW)).is_valid_request(tried_body, dict(headers))
    assert (problem("slack", headers, tried_secret.encode(), body=tried_body) is None) is library
    assert library is (flip is None and abs(age) <= 300)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"x-slack-signature": ""}, Problem.MISSING),
        ({"x-slack-request-timestamp": ""}, Problem.MISSING),
        ({"x-slack-request-timestamp": "now"}, Problem.MALFORMED),
        ({"x-slack-request-timestamp": "1e9"}, Problem.MALFORMED),
        ({"x-slack-request-timestamp": "١٧"}, Problem.MALFORMED),
        ({"x-slack-request-timestamp": "9" * 400}, Problem.MALFORMED),
        ({"x-slack-signature": "v0="}, Problem.MALFORMED),
        ({"x-slack-signature": "v1=" + "0" * 64}, Problem.MALFORMED),
        ({"x-slack-signature": "v0=" + "0" * 64 + ", v0=" + "0" * 64}, Problem.MALFORMED),
        ({"x-slack-signature": "v0=" + "é" * 64}, Problem.MALFORMED),
        ({"x-slack-signature": "v0=" + "0" * 64}, Problem.MISMATCH),
    ],
)
def test_slack_headers_that_prove_nothing(changed: dict[str, str], expected: Problem) -> None:
    assert problem("slack", sign_slack(SECRET, BODY, timestamp_s=NOW) | changed) is expected


# Shopify.


def test_shopify_is_base64_over_the_body() -> None:
    digest = base64.b64encode(hmac.new(b"hush", BODY, hashlib.sha256).digest()).decode()
    assert sign_shopify(b"hush", BODY) == {"x-shopify-hmac-sha256": digest}
    assert problem("shopify", {"x-shopify-hmac-sha256": digest}, b"old", b"hush") is None
    assert problem("shopify", {"x-shopify-hmac-sha256": digest}, b"hush", body=BODY + b"\n") is Problem.MISMATCH


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Problem.MISSING),
        ("x", Problem.MALFORMED),
        ("0" * 64, Problem.MALFORMED),
        ("é" * 44, Problem.MALFORMED),
        (base64.b64encode(b"0" * 33).decode(), Problem.MALFORMED),
        (base64.b64encode(b"0" * 32).decode(), Problem.MISMATCH),
    ],
)
def test_shopify_headers_that_prove_nothing(header: str, expected: Problem) -> None:
    assert problem("shopify", {"x-shopify-hmac-sha256": header}) is expected


# Standard Webhooks.


def test_standard_as_published() -> None:
    """The vector of the specification's libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    body = b'{"test": 2432232314}'
    assert problem("standard", headers, SECRET, body=body, at=1614265330) is None
    assert problem("standard", headers, SECRET.removeprefix(b"whsec_"), body=body, at=1614265330) is None
    assert problem("standard", headers, b"v1," + SECRET, body=body, at=1614265330) is None
    renamed = {name.replace("webhook", "svix"): value for name, value in headers.items()}
    assert problem("standard", renamed, SECRET, body=body, at=1614265330) is None
    assert problem("gitlab", headers, SECRET, body=body, at=1614265330) is None


def test_standard_with_several_signatures() -> None:
    right = sign_standard(SECRET, BODY, message_id="msg_1", timestamp_s=NOW)
    other = base64.b64encode(bytes(32)).decode()
    value = right["webhook-signature"]
    for header in (
        f"v1,{other} {value}",
        f"{value} v1,{other}",
        f"v1a,x {value}",
        f"  {value} nonsense",
        f"v1,, {value},",
    ):
        assert problem("standard", right | {"webhook-signature": header}) is None
    assert problem("standard", right | {"webhook-signature": f"v1,{other} v1a,x"}) is Problem.MISMATCH
    assert problem("standard", right, b"whsec_b3RoZXI=", SECRET) is None


@settings(deadline=None, max_examples=100)
@given(
    body=st.text(st.characters(codec="utf-8"), max_size=30),
    key=st.binary(min_size=24, max_size=40),
    message_id=st.from_regex(r"[A-Za-z0-9_.-]{1,30}", fullmatch=True),
    age=st.integers(-290, 290),
    flip=st.sampled_from([None, "body", "key", "id", "time", "value"]),
)
def test_standard_agrees_with_its_library(body: str, key: bytes, message_id: str, age: int, flip: str | None) -> None:
    now = int(time.time())
    secret = "whsec_" + base64.b64encode(key).decode()
    made = Webhook(secret).sign(message_id, datetime.fromtimestamp(now - age, UTC), body)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(now - age), "webhook-signature": made}
    assert headers == sign_standard(secret.encode(), body.encode(), message_id=message_id, timestamp_s=now - age)
    if flip == "id":
        headers["webhook-id"] += "x"
    if flip == "time":
        headers["webhook-timestamp"] = str(now - age + 1)
    if flip == "value":
        headers["webhook-signature"] = "v1," + base64.b64encode(bytes(32)).decode()
    tried_body = body + " " if flip == "body" else body
    tried_secret = "whsec_" + base64.b64encode(key + b"x").decode() if flip == "key" else secret
    try:
        library = _library_verifies(tried_secret, tried_body, headers)
    except WebhookVerificationError:
        library = False
    assert (problem("standard", headers, tried_secret.encode(), body=tried_body.encode(), at=now) is None) is library
    assert library is (flip is None)


def _library_verifies(secret: str, body: str, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except ValueError:  # verified, and then not JSON
        return True
    return True


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"webhook-id": ""}, Problem.MISSING),
        ({"webhook-timestamp": ""}, Problem.MISSING),
        ({"webhook-signature": ""}, Problem.MISSING),
        ({"webhook-timestamp": "1614265330.5"}, Problem.MALFORMED),
        ({"webhook-timestamp": "-1"}, Problem.MALFORMED),
        ({"webhook-signature": "v1"}, Problem.MALFORMED),
        ({"webhook-signature": "v1,"}, Problem.MALFORMED),
        ({"webhook-signature": "v2," + base64.b64encode(bytes(32)).decode()}, Problem.MALFORMED),
        ({"webhook-signature": " " * 2000}, Problem.MALFORMED),
        ({"webhook-signature": "v1," + base64.b64encode(bytes(31)).decode()}, Problem.MALFORMED),
        ({"webhook-signature": "v1," + base64.b64encode(bytes(32)).decode()}, Problem.MISMATCH),
        ({"webhook-id": "é\ud800"}, Problem.MISMATCH),
    ],
)
def test_standard_headers_that_prove_nothing(changed: dict[str, str], expected: Problem) -> None:
    assert problem("standard", sign_standard(SECRET, BODY, message_id="msg_1", timestamp_s=NOW) | changed) is expected


@pytest.mark.parametrize("secret", [b"whsec_", b"whsec_!!!!", b"not base64 at all", b"whsec_abcde", b"\xff"])
def test_a_secret_that_is_no_key_verifies_nothing(secret: bytes) -> None:
    headers = sign_standard(SECRET, BODY, message_id="m", timestamp_s=NOW)
    assert problem("standard", headers, secret) is Problem.MISMATCH
    assert problem("standard", headers, secret, SECRET) is None
    with pytest.raises(ValueError, match="whsec_"):
        sign_standard(secret, BODY, message_id="m", timestamp_s=NOW)


# Generic sources: an HMAC where the source says.


@pytest.mark.parametrize(
    ("algorithm", "encoding", "prefix", "header"),
    [
        # https://www.rfc-editor.org/rfc/rfc2202 and rfc4231, test case 2: key "Jefe".
        ("sha1", "hex", "", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        ("sha1", "hex", "sha1=", "sha1=EFFCDF6AE5EB2FA2D27416D5F184DF9C259A7C79"),
        ("sha256", "hex", "", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        ("sha256", "base64", "sha256=", "sha256=W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="),
        (
            "sha512",
            "hex",
            "",
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b"
            "4b636e070a38bce737",
        ),
    ],
)
def test_generic_hmac_vectors(algorithm: Algorithm, encoding: Encoding, prefix: str, header: str) -> None:
    check = Verify(hmac=HmacCheck(header="X-Acme-Signature", algorithm=algorithm, encoding=encoding, prefix=prefix))
    body = b"what do ya want for nothing?"
    assert problem("generic", {"x-acme-signature": header}, b"old", b"Jefe", body=body, check=check) is None
    assert problem("generic", {"x-acme-signature": header}, b"jefe", body=body, check=check) is Problem.MISMATCH
    made = sign_generic(b"Jefe", body, header="x-acme-signature", algorithm=algorithm, encoding=encoding, prefix=prefix)
    assert problem("generic", made, b"Jefe", body=body, check=check) is None
    if prefix:
        bare = {"x-acme-signature": header.removeprefix(prefix)}
        assert problem("generic", bare, b"Jefe", body=body, check=check) is Problem.MALFORMED


@pytest.mark.parametrize(
    ("encoding", "header", "expected"),
    [
        ("hex", "", Problem.MISSING),
        ("hex", "  ", Problem.MISSING),
        ("hex", "sha256=", Problem.MALFORMED),
        ("hex", "sha256=" + "0" * 63, Problem.MALFORMED),
        ("hex", "sha256=" + "0" * 66, Problem.MALFORMED),
        ("hex", "sha256=" + "g" * 64, Problem.MALFORMED),
        ("hex", "sha256=" + "\uff10" * 64, Problem.MALFORMED),
        ("hex", "SHA256=" + "0" * 64, Problem.MALFORMED),
        ("hex", "sha256=" + "0" * 64, Problem.MISMATCH),
        ("base64", "sha256=" + "0" * 44, Problem.MALFORMED),
        ("base64", "sha256=" + "=" * 44, Problem.MALFORMED),
        ("base64", "sha256=" + "A" * 42 + "==", Problem.MALFORMED),
        ("base64", "sha256=" + "A" * 43 + "=", Problem.MISMATCH),
    ],
)
def test_generic_headers_that_prove_nothing(encoding: Encoding, header: str, expected: Problem) -> None:
    check = Verify(hmac=HmacCheck(header="x-signature", encoding=encoding, prefix="sha256="))
    assert problem("generic", {"x-signature": header}, check=check) is expected


# Keys: what ingest hashed against what the source says.


@pytest.mark.parametrize(
    ("check", "name", "sent", "verified"),
    [
        (AuthKeyCheck(), "authorization", b"Bearer s3cret", True),
        (AuthKeyCheck(), "authorization", b"bearer  s3cret", True),
        (AuthKeyCheck(), "authorization", b"s3cret", False),
        (AuthKeyCheck(), "authorization", b"Token s3cret", False),
        (AuthKeyCheck(), "authorization", b"Bearer S3cret", False),
        (AuthKeyCheck(), "authorization", b"Bearer s3cret ", False),
        (AuthKeyCheck(prefix=""), "authorization", b"s3cret", True),
        (AuthKeyCheck(prefix="Token "), "authorization", b"token s3cret", True),
        (AuthKeyCheck(prefix="Splunk "), "authorization", b"Splunk s3cret", True),
        (AuthKeyCheck(prefix="Splunk "), "authorization", b"splunk s3cret", False),
        (AuthKeyCheck(header="X-Api-Key"), "x-api-key", b"s3cret", True),
        (AuthKeyCheck(header="X-Api-Key"), "x-api-key", b"Bearer s3cret", False),
        (AuthKeyCheck(header="X-Api-Key", prefix="Bearer "), "x-api-key", b"Bearer s3cret", True),
        (AuthKeyCheck(header="X-Telegram-Bot-Api-Secret-Token"), "x-telegram-bot-api-secret-token", b"s3cret", True),
        (AuthKeyCheck(header="X-Acme-Webhook-Secret"), "x-acme-webhook-secret", b"s3cret", True),
    ],
)
def test_auth_keys_are_compared_as_hashes(check: AuthKeyCheck, name: str, sent: bytes, verified: bool) -> None:
    headers = {name: hashed_credential(name, sent)}
    assert "s3cret" not in headers[name]
    found = problem("generic", headers, b"old", b"s3cret", check=Verify(auth_key=check))
    assert found is (None if verified else Problem.MISMATCH)
    assert problem("generic", {}, b"s3cret", check=Verify(auth_key=check)) is Problem.MISSING
    assert problem("generic", {name: "s3cret"}, b"s3cret", check=Verify(auth_key=check)) is Problem.MALFORMED


def test_gitlab_sends_its_token_or_signs() -> None:
    headers = {"x-gitlab-token": hashed_credential("x-gitlab-token", "tök€n".encode())}
    assert problem("gitlab", headers, "tök€n".encode()) is None
    assert problem("gitlab", headers, b"token") is Problem.MISMATCH
    assert problem("gitlab", {"x-gitlab-token": "token"}, b"token") is Problem.MALFORMED
    assert problem("gitlab", {}, b"token") is Problem.MISSING
    assert problem("gitlab", sign_standard(SECRET, BODY, message_id="uuid", timestamp_s=NOW)) is None


def test_a_generic_source_that_does_not_say_how_is_not_verified() -> None:
    assert problem("generic", {"authorization": hashed_credential("authorization", b"Bearer k")}, b"k") is (
        Problem.UNKNOWN_SCHEME
    )


def test_a_check_is_for_generic_sources_only() -> None:
    check = Verify(auth_key=AuthKeyCheck())
    headers = {"authorization": hashed_credential("authorization", b"Bearer k")}
    assert problem(" Generic", headers, b"k", check=check) is None
    assert problem("github", headers, b"k", check=check) is Problem.MISSING
    assert problem("gitea", headers, b"k", check=check) is Problem.UNKNOWN_SCHEME


# All schemes, any request.

HEADERS = sorted(
    {
        "x-hub-signature-256",
        "stripe-signature",
        "x-hubspot-signature-v3",
        "x-hubspot-request-timestamp",
        "x-slack-signature",
        "x-slack-request-timestamp",
        "x-shopify-hmac-sha256",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "x-gitlab-token",
        "authorization",
        "x-signature",
    }
)
CHECKS = [
    None,
    Verify(auth_key=AuthKeyCheck()),
    *(
        Verify(hmac=HmacCheck(header="x-signature", algorithm=algorithm, encoding=encoding))
        for algorithm in ("sha1", "sha256", "sha512")
        for encoding in ("hex", "base64")
    ),
]
plausible = st.sampled_from(
    [
        r"t=[0-9]{1,12}(,v1=[0-9a-f]{64}){1,3}",
        r"(sha256=|v0=|v1=)?[0-9a-f]{62,66}",
        r"(v1,)?[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)*",
        r"[A-Za-z0-9+/=]{28}|[A-Za-z0-9+/=]{88}|[0-9a-f]{40}|[0-9a-f]{128}",
        r"(bearer )?sha256:[0-9a-f]{64}",
        r"[1-9][0-9]{5,14}",
    ]
).flatmap(lambda pattern: st.from_regex(pattern, fullmatch=True))


@settings(deadline=None, max_examples=300)
@given(
    scheme=st.sampled_from([*SCHEMES, "generic", "?"]),
    check=st.sampled_from(CHECKS),
    headers=st.dictionaries(st.sampled_from(HEADERS), st.text() | plausible, min_size=1),
    body=st.binary(max_size=20),
    uri=st.text(max_size=20),
    method=st.text(max_size=5),
    secret=st.binary(min_size=1, max_size=20) | st.just(SECRET),
    received=st.floats(allow_nan=True, allow_infinity=True),
)
def test_no_request_raises_and_none_is_verified_by_chance(
    scheme: str,
    check: Verify | None,
    headers: dict[str, str],
    body: bytes,
    uri: str,
    method: str,
    secret: bytes,
    received: float,
) -> None:
    assert not verify(scheme, [secret], Signed(method, uri, headers, body, received), check=check).verified
