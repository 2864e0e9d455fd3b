"""The examples of docs/api.md do what it says, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from room_admin import feed, idempotency, spending
from room_admin.routes import definitions
from room_common.postgres import answered
from room_testing.administering import Administering

pytestmark = pytest.mark.integration

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text()
EXAMPLE = re.compile(
    r"^(?P<method>[A-Z]+) /api/v1(?P<path>\S+)\n(?P<headers>(?:[A-Z][A-Za-z-]+: .+\n)*)(?P<body>\{.*\}\n)?"
    r"-> (?P<status>\d+)(?: (?P<pointer>\S+))?$",
    re.MULTILINE,
)


async def test_the_examples_do_what_they_say(own_admin: Administering) -> None:
    await own_admin.listed("desk")
    blocks = re.findall(r"```http\n(.*?)```", DOCUMENT, re.DOTALL)
    examples = [found for block in blocks for found in EXAMPLE.finditer(block)]
    assert len(examples) == sum(block.count("\n-> ") for block in blocks) > 10
    for example in examples:
        headers = dict(line.split(": ", 1) for line in example["headers"].splitlines())
        answer = await own_admin.call(
            example["method"],
            example["path"],
            headers=headers | {"Content-Type": "application/json"},
            content=example["body"] or "",
        )
        assert answer.status_code == int(example["status"]), (example[0], answer.text)
        if example["pointer"]:
            assert answer.json()["errors"][0]["pointer"] == example["pointer"]


def test_figures_are_those_of_the_code() -> None:
    rows = {"read": "payloads", "replay": "`POST /deliveries", "write": "answers to an agent"}
    for kind, (burst, seconds) in spending.LIMITS.items():
        assert re.search(rf"\| {re.escape(rows[kind])}[^|]*\| {burst} \| {seconds:g} s \|", DOCUMENT), kind
    assert f"| {definitions.BURST}, and {definitions.AT_ONCE} running" in DOCUMENT
    assert f"{feed.STREAMS} streams may be open on one process and {feed.STREAMS_OF_ONE} by one caller" in DOCUMENT
    assert f"for {answered.HOURS} hours" in DOCUMENT
    assert f"after {answered.CLAIM_SECONDS // 60} minutes" in DOCUMENT
    assert idempotency.HEADER == "idempotency-key"
