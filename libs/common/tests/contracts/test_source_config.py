"""What a source may be configured to: accepted, refused with words that help, and read back as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from room_common.contracts.room_document import SourceDocument
from room_common.contracts.source_config import (
    SOURCE_TYPES,
    AuthKeyCheck,
    HmacCheck,
    SourceConfig,
    SourceType,
    Verify,
    read_config,
    secret_problem,
    unusable_secrets,
)
from room_common.errors import Refused

HMAC = {"hmac": {"header": "X-Acme-Signature", "algorithm": "sha512", "encoding": "base64", "prefix": "v1="}}
KEY: dict[str, Any] = {"auth_key": {}}


def source(**fields: Any) -> SourceDocument:
    return SourceDocument.model_validate({"name": "s", "type": "generic", **fields})


def refusal(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        source(**fields)
    return "; ".join(error["msg"] for error in caught.value.errors())


@pytest.mark.parametrize(
    "config",
    [
        SourceConfig(),
        SourceConfig(secrets=("a", "b"), split=False, dedup_seconds=0),
        SourceConfig(secrets=("a",), verify=Verify.model_validate(HMAC)),
        SourceConfig(secrets=("a",), verify=Verify.model_validate(KEY)),
    ],
)
def test_a_config_is_read_back_as_it_was_written(config: SourceConfig) -> None:
    assert read_config(config.encode()) == config


def test_fields_of_newer_versions_are_ignored_at_every_depth() -> None:
    newer = b'{"secrets":["a"],"new":1,"verify":{"new":1,"hmac":{"header":"x-signature","new":1}}}'
    assert read_config(newer) == SourceConfig(secrets=("a",), verify=Verify(hmac=HmacCheck(header="x-signature")))


@pytest.mark.parametrize(
    "plain",
    [b"", b"[]", b"null", b"{", b'{"secrets":"a"}', b'{"secrets":[""]}', b'{"verify":{}}', b'{"dedup_seconds":-1}'],
)
def test_what_is_no_config_is_refused(plain: bytes) -> None:
    with pytest.raises(Refused, match="config_unreadable"):
        read_config(plain)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_config_or_refused(plain: bytes) -> None:
    try:
        read_config(plain)
    except Refused:
        pass


@pytest.mark.parametrize("kind", SOURCE_TYPES)
def test_every_type_takes_secrets(kind: SourceType) -> None:
    verify = KEY if kind == "generic" else None
    assert source(type=kind, secrets=[{"env": "A"}, {"file": "b"}], verify=verify).type == kind
    assert source(type=kind).secrets == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"secrets": [{"env": "A"}]}, "verify: {hmac"),
        ({"verify": KEY}, "at least one secret"),
        ({"type": "github", "secrets": [{"env": "A"}], "verify": KEY}, "generic"),
        ({"secrets": [{"env": "A"}], "verify": {}}, "either hmac"),
        ({"secrets": [{"env": "A"}], "verify": {**KEY, **HMAC}}, "either hmac"),
        ({"secrets": [{"env": "A"}], "verify": {"hmac": {"header": "x-acme"}}}, "'signature' or 'hmac'"),
        ({"secrets": [{"env": "A"}], "verify": {"hmac": {"header": "x-signature-key"}}}, "'signature' or 'hmac'"),
        ({"secrets": [{"env": "A"}], "verify": {"hmac": {"header": "x signature"}}}, "pattern"),
        ({"secrets": [{"env": "A"}], "verify": {"hmac": {"header": "x-signature", "algorithm": "md5"}}}, "sha1"),
        ({"secrets": [{"env": "A"}], "verify": {"hmac": {"header": "x-signature", "prefix": "é"}}}, "pattern"),
        ({"secrets": [{"env": "A"}], "verify": {"auth_key": {"header": "x-acme"}}}, "-token, -key"),
        ({"secrets": [{"env": "A"}], "verify": {"auth_key": {"header": "idempotency-key"}}}, "-token, -key"),
        ({"type": "gitea"}, "github"),
        ({"split": "sometimes"}, "bool"),
        ({"dedup_seconds": -1}, "greater"),
        ({"dedup_seconds": 8 * 86_400}, "less"),
    ],
)
def test_what_cannot_work_is_refused_with_words_that_help(fields: dict[str, Any], words: str) -> None:
    assert words in refusal(**fields)


def test_header_names_are_compared_in_lower_case() -> None:
    assert HmacCheck(header=" X-Acme-Signature ").header == "x-acme-signature"
    assert AuthKeyCheck(header="X-API-Key").header == "x-api-key"


def test_the_prefix_is_bearer_for_authorization_only() -> None:
    assert AuthKeyCheck().text_before == "Bearer "
    assert AuthKeyCheck(prefix="").text_before == ""
    assert AuthKeyCheck(header="x-api-key").text_before == ""
    assert AuthKeyCheck(header="x-api-key", prefix="Key ").text_before == "Key "


@pytest.mark.parametrize(
    ("kind", "secret", "usable"),
    [
        ("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", True),
        ("standard", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", True),
        ("standard", "whsec_", False),
        ("standard", "my secret", False),
        ("github", "my secret", True),
        ("github", "secret\n", False),
        ("github", " secret", False),
        ("stripe", "whsec_!", True),
    ],
)
def test_secrets_that_could_never_verify_are_told(kind: SourceType, secret: str, usable: bool) -> None:
    problem = secret_problem(kind, secret)
    assert (problem is None) is usable
    assert problem is None or secret.strip() not in problem or secret == "whsec_"
    assert unusable_secrets(kind, ["whsec_AAAA", secret]) == ([] if usable else [(1, problem)])
