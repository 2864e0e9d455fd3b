"""What is fuzzed: total functions over bytes from outside, each with what must hold whatever the bytes.

A target takes one input and raises ``AssertionError`` (or anything else) when something does not hold. Inputs are
lines and then a body, so that those of the corpus can be read and written by hand.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from room_common.contracts.envelope import MAX_HEADER_VALUE, decode, encode
from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify
from room_common.domain.decoding import MAX_ITEMS, Decoded, decode_payload
from room_common.domain.jsonview import Json, json_text
from room_common.domain.verdict import EXCERPT_LENGTH, Answer, verdict
from room_common.errors import DeadLetter
from room_common.kafka.records import Record
from room_ingest.domain import handshakes
from room_ingest.domain.request_headers import keep, plan
from room_matcher.domain.delivery_identity import identify, is_handshake_confirmation
from room_matcher.domain.signatures import Signed, verify

SECRET: Final = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED_AT: Final = 1_790_000_000
URI: Final = "https://hooks.example.test/webhooks/0123"
MAX_DEPTH: Final = 64

CHECKS: Final[Mapping[str, Verify]] = {
    "generic-key": Verify(auth_key=AuthKeyCheck()),
    **{
        f"generic-{algorithm}-{encoding}": Verify(
            hmac=HmacCheck(header="x-signature", algorithm=algorithm, encoding=encoding, prefix="v=")
        )
        for algorithm in ("sha1", "sha256", "sha512")
        for encoding in ("hex", "base64")
    },
}


def fuzz_decoding(data: bytes) -> None:
    """Lines: content type, content encoding, ``split`` or nothing; then the body."""
    lines = _lines(data, 3)
    content_type, coding, split = (line.decode("latin-1") for line in lines[:3])
    decoded = decode_payload(lines[3], content_type or None, {"content-encoding": coding}, split=split == "split")
    if not isinstance(decoded, Decoded):
        assert decoded.reason.value
        return
    assert 1 <= len(decoded.items) <= MAX_ITEMS
    for index, item in enumerate(decoded.items):
        assert item.index == index
        assert (item.view is None) is (item.problem is not None)
        shown = json_text(item.view)
        assert "\x00" not in shown
        shown.encode()
        assert _depth(item.view) <= MAX_DEPTH
        again = decode_payload(
            item.raw, item.content_type, {"content-encoding": item.content_encoding or ""}, split=False
        )
        if item.problem is None:
            assert isinstance(again, Decoded)
            assert json_text(again.items[0].view) == shown


def fuzz_signatures(data: bytes) -> None:
    """Lines: scheme, headers until an empty line; then the body. What is verified breaks with one byte of the body."""
    name, check, signed = signed_request(data)
    found = verify(name, [b"other", SECRET], signed, check=check)
    assert found == verify(name, [b"other", SECRET], signed, check=check)
    assert found.verified is (found.problem is None)
    by_key = check is not None and check.auth_key is not None
    if found.verified and not by_key and name != "gitlab":
        changed = replace(signed, body=signed.body + b" ")
        assert not verify(name, [SECRET], changed, check=check).verified
        assert not verify(name, [b"other"], signed, check=check).verified


def signed_request(data: bytes) -> tuple[str, Verify | None, Signed]:
    """The source type, check and request of an input of the signatures."""
    scheme, _, rest = data.partition(b"\n")
    headers, body = _headers(rest)
    kind = scheme.decode("latin-1").strip().lower()
    check = CHECKS.get(kind)
    return "generic" if check is not None else kind, check, Signed("POST", URI, headers, body, SIGNED_AT)


def fuzz_verdict(data: bytes) -> None:
    """The whole input is a model's answer."""
    answer = data.decode("utf-8", "surrogateescape")
    found = verdict(answer)
    assert found.matches + (found.answer is Answer.NO) + found.warning == 1
    assert len(found.excerpt) <= EXCERPT_LENGTH
    assert "\x00" not in found.excerpt
    found.excerpt.encode()
    assert verdict(f" \n{answer}\t").answer is found.answer


def fuzz_identity(data: bytes) -> None:
    """Lines: source type, headers until an empty line; then a JSON body, split into items where it is an array."""
    kind, _, rest = data.partition(b"\n")
    headers, body = _headers(rest)
    for split in (False, True):
        decoded = decode_payload(body, "application/json", {}, split=split)
        for item in decoded.items if isinstance(decoded, Decoded) else ():
            found = identify(kind.decode("latin-1"), headers, item)
            assert found == identify(kind.decode("latin-1"), headers, item)
            assert found.key.isascii() and found.key.isprintable() and len(found.key) <= 250
            assert len(found.content_sha256) == 32
            assert is_handshake_confirmation(item.view) in (True, False)


def fuzz_envelope(data: bytes) -> None:
    """Lines: record headers until an empty line; then the value."""
    head, _, value = data.partition(b"\n\n")
    pairs = [line.partition(b": ") for line in head.split(b"\n")]
    fields = tuple((name.decode("latin-1"), content) for name, _, content in pairs)
    try:
        envelope = decode(Record("webhooks.raw", 0, 0, 0, None, value, fields))
    except DeadLetter as error:
        assert error.kind == "bad_envelope"
        return
    assert decode(Record("webhooks.raw", 0, 0, 0, None, value, encode(envelope))) == envelope


def fuzz_request(data: bytes) -> None:
    """Lines: query, headers until an empty line; then the body. Handshakes are echoed in bounds, headers are kept."""
    query, _, rest = data.partition(b"\n")
    head, _, body = rest.partition(b"\n\n")
    echoes = [handshakes.slack_challenge(body), handshakes.graph_validation(query, body)]
    try:
        echoes.append(handshakes.hub_challenge(query, b"token"))
    except handshakes.WrongVerifyToken:
        pass
    assert all(echo is None or 0 < len(echo) <= handshakes.MAX_ECHO for echo in echoes)
    lines = [line.partition(b": ") for line in head.split(b"\n")]
    kept = keep(plan(tuple(name for name, _, _ in lines)), [value.strip() for _, _, value in lines])
    http = decode_payload(kept.http, "application/json", {}, split=False)
    assert isinstance(http, Decoded)
    view = http.items[0].view
    assert isinstance(view, dict)
    for name, value in view.items():
        assert isinstance(value, str)
        assert len(value) <= MAX_HEADER_VALUE
        if name in ("authorization", "x-gitlab-token", "x-api-key"):
            assert hmac.compare_digest(value[-71:-64], "sha256:")


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "decoding": fuzz_decoding,
    "signatures": fuzz_signatures,
    "verdict": fuzz_verdict,
    "identity": fuzz_identity,
    "envelope": fuzz_envelope,
    "request": fuzz_request,
}


def _lines(data: bytes, count: int) -> list[bytes]:
    lines = data.split(b"\n", count)
    return lines + [b""] * (count + 1 - len(lines))


def _headers(data: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = data.partition(b"\n\n")
    pairs = [line.partition(b": ") for line in head.split(b"\n")]
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, _, value in pairs}, body


def _depth(view: Json) -> int:
    depth, level = 0, [view]
    while any(isinstance(value, (dict, list)) for value in level):
        depth += 1
        level = [
            child
            for value in level
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    return depth
