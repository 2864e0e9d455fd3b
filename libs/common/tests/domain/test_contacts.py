"""Contacts in the form in which they are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.domain.contacts import canonical, target_problem

channels = st.sampled_from(["local", "slack", "telegram", "whatsapp", "webhook"])


@pytest.mark.parametrize(
    ("channel", "one", "other"),
    [
        ("whatsapp", "whatsapp:+390612345678", "+39 06 1234-5678"),
        ("whatsapp", "WhatsApp:+390612345678", "0039 (06) 12345678"),
        ("slack", "u0ada", " U0ADA "),
        ("telegram", "@Desk_Chat", "@desk_chat"),
        ("local", "Ada", " ada"),
    ],
)
def test_the_same_contact(channel: str, one: str, other: str) -> None:
    assert canonical(channel, one) == canonical(channel, other)


@given(channels, st.text())
def test_total_and_stable(channel: str, contact: str) -> None:
    once = canonical(channel, contact)
    assert canonical(channel, canonical(channel, once)) == canonical(channel, once)
    assert target_problem(channel, contact) is None or target_problem(channel, contact)


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        ("slack", "C0OPS"), ("slack", "U012AB3CD"), ("telegram", "-1001234567890"), ("telegram", "42"),
        ("telegram", "@my_news"),
        ("whatsapp", "+390612345678"), ("webhook", "https://example.com:8443/hook?x=1"), ("webhook", "https://[::1]/"),
        ("local", "you"),
    ],
)  # fmt: skip
def test_targets(channel: str, target: str) -> None:
    assert target_problem(channel, target) is None


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        ("slack", "#ops"), ("slack", "ada"), ("telegram", "Ada"), ("telegram", "@a"), ("whatsapp", "0612345678"),
        ("whatsapp", "+39"), ("webhook", "example.com"), ("webhook", "https://me:pw@example.com/"), ("webhook", "https://"),
        ("webhook", "https://example.com/#a"), ("webhook", "https://example.com/a b"),
    ],
)  # fmt: skip
def test_what_is_no_target(channel: str, target: str) -> None:
    assert target_problem(channel, target) is not None
