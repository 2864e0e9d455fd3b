"""Channel configs: what is taken, and that nothing of it shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from room_common.contracts.channel_config import (
    CHANNEL_SECRETS,
    CHANNEL_TYPES,
    LocalConfig,
    encode_channel_config,
    make_channel_config,
    read_channel_config,
)
from room_common.errors import Refused

SECRETS: dict[str, dict[str, str]] = {
    "slack": {"bot_token": "xoxb-hidden-1", "signing_secret": "hidden-2"},
    "telegram": {"bot_token": "123:hidden-hidden", "secret_token": "hidden"},
    "whatsapp": {"account_sid": "AC" + "0" * 32, "auth_token": "hidden"},
    "webhook": {"secret": "whsec_aGlkZGVuLWhpZGRlbg=="},
}


@pytest.mark.parametrize("kind", SECRETS)
def test_what_is_written_is_read_and_never_shown(kind: str) -> None:
    sender = "+1 415 523 8886" if kind == "whatsapp" else None
    config = make_channel_config(kind, SECRETS[kind], sender=sender, allow=("U1",))  # type: ignore[arg-type]
    assert read_channel_config(kind, encode_channel_config(config)) == config
    assert set(SECRETS[kind]) == set(CHANNEL_SECRETS[config.type])
    assert not any(value in repr(config) for value in SECRETS[kind].values())
    with pytest.raises(Refused, match="config_unreadable"):
        read_channel_config("slack" if kind != "slack" else "telegram", encode_channel_config(config))


def test_every_channel_says_which_secrets_it_needs() -> None:
    assert set(CHANNEL_SECRETS) == set(CHANNEL_TYPES)


def test_only_the_local_channel_needs_no_config() -> None:
    assert read_channel_config("local", None) == LocalConfig()
    with pytest.raises(Refused, match="channel_not_configured"):
        read_channel_config("slack", None)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("slack", {"bot_token": "has space"}),
        ("slack", {"bot_token": "line\nbreak"}),
        ("slack", {"signing_secret": ""}),
        ("telegram", {"bot_token": "123/../x"}),
        ("telegram", {"secret_token": "é"}),
        ("whatsapp", {"account_sid": "AC1/../.."}),
        ("webhook", {"secret": "plain"}),
        ("webhook", {"more": "x"}),
    ],
)
def test_what_can_not_be_right_is_refused_without_being_repeated(kind: str, changes: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        make_channel_config(kind, SECRETS[kind] | changes, sender="+14155238886" if kind == "whatsapp" else None)  # type: ignore[arg-type]
    assert "hidden" not in str(refused.value)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_config_or_unreadable(plain: bytes) -> None:
    with pytest.raises(Refused, match="config_unreadable"):
        read_channel_config("slack", plain)
