"""What the demo sends, and what must come of it. The example room and its payloads are in examples/revenue-desk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from room_cli.send_command import Kind

ROOM: Final = "revenue-desk"
PERSON: Final = "you"
ANSWER: Final = "Thanks. Ask Marta to roll the deploy back, and tell me when it is done."

SECRETS: Final = {
    "hubspot-crm": "REVENUE_DESK_HUBSPOT_SECRET",
    "stripe-billing": "REVENUE_DESK_STRIPE_SECRET",
    "github-ci": "REVENUE_DESK_GITHUB_SECRET",
}
"""The environment variable that holds each source's secret."""

Signature = Literal["right", "wrong"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request. ``expected`` are the outcomes of its items; empty where nothing is to be recorded.

    ``payload`` is a file name or the bytes themselves; ``repeats`` names an earlier delivery that is sent once more as
    it was, ids included.
    """

    title: str
    source: str
    kind: Kind
    payload: str | bytes
    expected: tuple[str, ...]
    event: str | None = None
    form: bool = False
    signature: Signature = "right"
    repeats: str | None = None
    unknown_token: bool = False
    answer: dict[str, object] = field(default_factory=lambda: {"ok": True})


_TOO_LARGE: Final = b'{"note":"' + b"x" * (65_537 - 11) + b'"}'

DELIVERIES: Final = (
    Delivery(
        "three property changes in one array",
        "hubspot-crm",
        Kind.hubspot,
        "hubspot-changes.json",
        ("matched", "matched", "no_match"),
    ),
    Delivery("invoice.paid", "stripe-billing", Kind.stripe, "stripe-invoice-paid.json", ("matched",)),
    Delivery(
        "workflow_run failed, as JSON",
        "github-ci",
        Kind.github,
        "github-workflow-failure.json",
        ("matched",),
        event="workflow_run",
    ),
    Delivery(
        "workflow_run failed again, as a form",
        "github-ci",
        Kind.github,
        "github-workflow-failure-again.json",
        ("matched",),
        event="workflow_run",
        form=True,
    ),
    Delivery("customer.updated", "stripe-billing", Kind.stripe, "stripe-customer-updated.json", ("no_match",)),
    Delivery("a star", "github-ci", Kind.github, "github-star.json", ("no_match",), event="star"),
    Delivery(
        "invoice.paid, delivered a second time",
        "stripe-billing",
        Kind.stripe,
        "stripe-invoice-paid.json",
        ("duplicate",),
        repeats="invoice.paid",
    ),
    Delivery(
        "a wrong signature",
        "github-ci",
        Kind.github,
        "github-workflow-failure.json",
        ("bad_signature",),
        event="workflow_run",
        signature="wrong",
    ),
    Delivery(
        "65,537 bytes",
        "github-ci",
        Kind.github,
        _TOO_LARGE,
        ("too_large",),
        event="push",
        answer={"ok": False, "error": "payload_too_large"},
    ),
    Delivery("an empty body", "github-ci", Kind.github, b"", ("undecodable",), event="push"),
    Delivery("a token nobody made", "github-ci", Kind.github, "github-star.json", (), unknown_token=True),
)


def expected_outcomes() -> Counter[str]:
    """How often each outcome must be recorded."""
    return Counter(outcome for delivery in DELIVERIES for outcome in delivery.expected)


def example_folder() -> Path:
    """The example room. Raises ``FileNotFoundError`` outside a checkout."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "examples" / ROOM
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"examples/{ROOM}")
