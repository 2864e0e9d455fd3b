"""What `room send` signs is what the matcher verifies, for every type of source."""

from __future__ import annotations

import orjson
import pytest
import typer

from room_cli.send_command import Kind, build, with_new_ids
from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify
from room_common.domain.decoding import Decoded, decode_payload
from room_ingest.domain.request_headers import keep, plan
from room_matcher.domain.delivery_identity import ID_TTL_S, identify
from room_matcher.domain.signatures import Problem, Signed, verify

NOW = 1_790_000_000.5
URL = "https://hooks.example.com/webhooks/0123"
SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODIES = {
    Kind.stripe: b'{"id":"evt_1"}',
    Kind.hubspot: b'[{"eventId":1},{"eventId":2}]',
    Kind.slack: b'{"type":"event_callback","event_id":"Ev1"}',
}
HMAC = Verify(hmac=HmacCheck(header="x-acme-signature", algorithm="sha1", encoding="base64", prefix="sha1="))


def received(post_headers: dict[str, str]) -> dict[str, str]:
    """The headers as they travel with a record."""

    names = plan(tuple(name.encode() for name in post_headers))
    values = [value.encode("latin-1") for value in post_headers.values()]
    kept: dict[str, str] = orjson.loads(keep(names, values).http)
    return kept


def sent(kind: Kind, check: Verify | None = None, secret: bytes | None = SECRET) -> tuple[bytes, dict[str, str]]:
    body = with_new_ids(kind, BODIES.get(kind, b'{"a":1}'))
    post = build(
        kind,
        URL,
        body,
        secret=secret,
        verify=check,
        event=None,
        extra={},
        form=False,
        now=NOW,
        delivery="d1",
    )
    return post.body, dict(post.headers)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        *((kind, None) for kind in Kind if kind is not Kind.generic),
        (Kind.generic, HMAC),
        (Kind.generic, Verify(auth_key=AuthKeyCheck())),
        (Kind.generic, Verify(auth_key=AuthKeyCheck(header="x-api-key"))),
    ],
)
def test_the_matcher_verifies_what_is_sent(kind: Kind, check: Verify | None) -> None:
    body, headers = sent(kind, check)
    kept = received(headers)
    assert verify(kind, [SECRET], Signed("POST", URL, kept, body, NOW), check=check).problem is None
    assert verify(kind, [b"whsec_b3RoZXI="], Signed("POST", URL, kept, body, NOW), check=check).problem is (
        Problem.MISMATCH
    )


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.generic])
def test_each_delivery_has_an_id_of_its_own(kind: Kind) -> None:
    body, headers = sent(kind, secret=None)
    decoded = decode_payload(body, "application/json", {}, split=kind is Kind.hubspot)
    assert isinstance(decoded, Decoded)
    found = [identify(kind, received(headers), item) for item in decoded.items]
    assert all(one.ttl_seconds == ID_TTL_S for one in found)
    assert len({one.key for one in found}) == len(decoded.items)


def test_a_secret_without_a_known_check_is_refused() -> None:
    with pytest.raises(typer.Exit):
        sent(Kind.generic)


def test_a_secret_that_is_no_key_is_refused() -> None:
    with pytest.raises(typer.Exit):
        sent(Kind.standard, secret=b"not a key")
