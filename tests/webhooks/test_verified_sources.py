"""Each type of source from the socket to the verdict: ingest keeps what the matcher needs, and no secret travels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify
from room_common.domain.signing import (
    sign_generic,
    sign_github,
    sign_hubspot,
    sign_shopify,
    sign_slack,
    sign_standard,
    sign_stripe,
)
from room_testing.judged_port import OK, PUBLIC_URI, JudgedPort, Kind
from room_testing.webhook_port import TOKEN, post

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = SECRET.encode()
BODY = b'{"id":"evt_1","event_id":"Ev1"}'

# Signed when they are sent: a run may be minutes old by then, and a signature's age counts.
SCHEMES: dict[str, Callable[[int], Mapping[str, str]]] = {
    "github": lambda _: sign_github(KEY, BODY),
    "gitlab": lambda _: {"X-Gitlab-Token": SECRET},
    "stripe": lambda now: sign_stripe(KEY, BODY, timestamp_s=now),
    "hubspot": lambda now: sign_hubspot(KEY, BODY, method="POST", uri=PUBLIC_URI, timestamp_ms=now * 1000),
    "slack": lambda now: sign_slack(KEY, BODY, timestamp_s=now),
    "shopify": lambda _: sign_shopify(KEY, BODY),
    "standard": lambda now: sign_standard(KEY, BODY, message_id="msg_1", timestamp_s=now),
}

ACME = HmacCheck(header="X-ACME-Signature-512", algorithm="sha512", encoding="base64", prefix="v1=")
GENERIC: list[tuple[Verify, Mapping[str, str], bool]] = [
    (
        Verify(hmac=ACME),
        sign_generic(KEY, BODY, header="X-Acme-Signature-512", algorithm="sha512", encoding="base64", prefix="v1="),
        True,
    ),
    (
        Verify(hmac=HmacCheck(header="x-hub-signature", algorithm="sha1", prefix="sha1=")),
        sign_generic(KEY, BODY, header="X-Hub-Signature", algorithm="sha1", encoding="hex", prefix="sha1="),
        True,
    ),
    (
        Verify(hmac=HmacCheck(header="x-acme-hmac")),
        sign_generic(KEY, BODY, header="X-Acme-HMAC", algorithm="sha1", encoding="hex", prefix=""),
        False,
    ),
    (Verify(auth_key=AuthKeyCheck()), {"Authorization": f"Bearer {SECRET}"}, True),
    (Verify(auth_key=AuthKeyCheck()), {"authorization": f"bearer   {SECRET} "}, True),
    (Verify(auth_key=AuthKeyCheck()), {"Authorization": f"Basic {SECRET}"}, False),
    (Verify(auth_key=AuthKeyCheck()), {"Authorization": SECRET}, False),
    (Verify(auth_key=AuthKeyCheck()), {"X-Api-Key": f"Bearer {SECRET}"}, False),
    (Verify(auth_key=AuthKeyCheck(prefix="")), {"Authorization": SECRET}, True),
    (Verify(auth_key=AuthKeyCheck(header="X-Api-Key")), {"x-api-KEY": SECRET}, True),
    (
        Verify(auth_key=AuthKeyCheck(header="X-Telegram-Bot-Api-Secret-Token")),
        {"X-Telegram-Bot-Api-Secret-Token": SECRET},
        True,
    ),
    (Verify(auth_key=AuthKeyCheck(header="X-Acme-Webhook-Token")), {"X-Acme-Webhook-Token": SECRET}, True),
]


def request(headers: Mapping[str, str], body: bytes = BODY) -> bytes:
    lines = [f"{name}: {value}".encode() for name, value in headers.items()]
    return post(body, path=b"/webhooks/" + TOKEN, headers=(b"Content-Type: application/json", *lines))


@pytest.mark.parametrize("kind", sorted(SCHEMES))
async def test_each_provider_is_verified_during_a_rotation(port: JudgedPort, kind: str) -> None:
    signed = SCHEMES[kind](int(time.time()))
    cases = [
        (("whsec_b3RoZXI=", SECRET), signed, ["asked"]),
        ((SECRET,), {}, ["bad_signature: missing"]),
        (("whsec_b3RoZXI=",), signed, ["bad_signature: mismatch"]),
    ]
    for secrets, headers, outcomes in cases:
        received = await port.receive(Kind(kind, secrets), request(headers))
        assert received.said == OK
        assert received.outcomes == outcomes
        assert received.verified is (outcomes == ["asked"])
    unasked = await port.receive(Kind(kind), request({}))
    assert unasked.outcomes == ["asked"] and not unasked.verified


@pytest.mark.parametrize(("check", "headers", "verified"), GENERIC)
async def test_a_generic_source_is_verified_as_it_says(
    port: JudgedPort, check: Verify, headers: Mapping[str, str], verified: bool
) -> None:
    source = Kind("generic", ("other", SECRET), check)
    received = await port.receive(source, request(headers))
    assert received.said == OK
    assert received.verified is verified
    assert (received.outcomes == ["asked"]) is verified
    assert verified or received.outcomes[0].startswith("bad_signature: ")
    assert (await port.receive(Kind("generic", ("other",), check), request(headers))).outcomes != ["asked"]


@pytest.mark.parametrize(
    "headers", [SCHEMES["gitlab"](0), *(headers for check, headers, _ in GENERIC if check.auth_key)]
)
async def test_no_key_travels_with_a_record(port: JudgedPort, headers: Mapping[str, str]) -> None:
    received = await port.receive(Kind("generic"), request(headers))
    assert received.record is not None
    assert KEY not in b"".join(value for _, value in received.record.headers)
    assert all("sha256:" in received.record.envelope.http[name.lower()] for name in headers)
