"""Where an item ended tells what it passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain.checks import Check, checks
from room_common.domain.deliveries import OUTCOMES, Outcome


@given(st.sampled_from(OUTCOMES), st.none() | st.text())
def test_only_the_last_check_fails_and_only_a_match_has_none(outcome: Outcome, reason: str | None) -> None:
    made = checks(outcome, reason)
    assert all(check.passed for check in made[:-1])
    if outcome != "dead":
        assert made[-1].passed is (outcome == "matched")


@pytest.mark.parametrize(
    ("outcome", "reason", "last"),
    [
        ("unknown_token", "expired", Check("token", False, "expired")),
        ("too_large", "body", Check("size", False, "body")),
        ("too_large", "inflated", Check("decodes", False, "inflated")),
        ("bad_signature", "stale", Check("signature", False, "stale")),
        ("duplicate", "of x/0", Check("not a duplicate", False, "of x/0")),
        ("duplicate", "decided_elsewhere", Check("decided once", False, "duplicate: decided_elsewhere")),
        ("backlog_full", "pending", Check("room in the backlog", False, "pending")),
        ("backlog_full", "at_commit", Check("decided once", False, "backlog_full: at_commit")),
        ("no_match", None, Check("a definition matches", False)),
    ],
)
def test_the_last_check(outcome: Outcome, reason: str | None, last: Check) -> None:
    assert checks(outcome, reason)[-1] == last


def test_the_first_checks_are_cheap_ones() -> None:
    assert [check.check for check in checks("bad_signature", None)] == [
        "token",
        "source enabled",
        "config readable",
        "size",
        "signature",
    ]
