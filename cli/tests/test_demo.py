"""The demo's scenario, its timeline and its summary."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from room_cli.demo import scenario, summary
from room_cli.demo.scenario import DELIVERIES, SECRETS, expected_outcomes
from room_cli.demo.summary import Check
from room_cli.demo.timeline import Timeline
from room_cli.room_file import read_room_file
from room_common.domain.deliveries import OUTCOMES


def _console(width: int = 80) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, highlight=False, emoji=False), out


def test_the_scenario_shows_what_it_should() -> None:
    assert expected_outcomes() == Counter(
        matched=5, no_match=3, duplicate=1, bad_signature=1, too_large=1, undecodable=1
    )
    assert set(expected_outcomes()) <= set(OUTCOMES)
    assert [one.title for one in DELIVERIES if one.form] and [one.title for one in DELIVERIES if one.unknown_token]
    oversized = next(one for one in DELIVERIES if one.expected == ("too_large",))
    assert len(oversized.payload) == 65_537
    assert len({one.title for one in DELIVERIES}) == len(DELIVERIES)


def test_the_scenario_fits_the_example_room() -> None:
    folder = scenario.example_folder()
    room = read_room_file(folder / "room.yaml", dict.fromkeys(SECRETS.values(), "word")).document
    assert room.slug == scenario.ROOM
    assert room.channel is not None and room.channel.target == scenario.PERSON
    types = {source.name: source.type for source in room.sources}
    assert set(types) == set(SECRETS)
    for delivery in DELIVERIES:
        assert types[delivery.source] == delivery.kind.value
        assert isinstance(delivery.payload, bytes) or (folder / "payloads" / delivery.payload).is_file()


def test_what_is_repeated_was_sent_before() -> None:
    before: list[str] = []
    for delivery in DELIVERIES:
        assert delivery.repeats is None or delivery.repeats in before
        before.append(delivery.title)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_timeline_keeps_to_the_terminal(width: int) -> None:
    console, out = _console(width)
    timeline = Timeline(console)
    timeline.add("HTTP", "200 " + "x" * 300, "detail")
    timeline.quote(
        "First line of a message that is rather long, with many words in it. " * 3 + "\n\nSecond \x1b[31m[bold]:smile:"
    )
    first, *quoted = out.getvalue().splitlines()
    assert cell_len(first) <= width and first.endswith("…")
    assert all(line.startswith(f"{'':11}│ ") or line == f"{'':11}│" for line in quoted)
    assert all(cell_len(line) <= width and line.isprintable() for line in quoted)
    assert "[bold]:smile:" in "".join(line.removeprefix(f"{'':11}│ ") for line in quoted)


@given(st.text(max_size=300), st.integers(34, 120))
def test_a_quote_loses_no_word(text: str, width: int) -> None:
    console, out = _console(width)
    Timeline(console).quote(text)
    lines = out.getvalue().splitlines()
    assert all(cell_len(line) <= max(width, 33) for line in lines)
    shown = "".join(line.partition("│")[2] for line in lines)
    assert "".join(shown.split()) == "".join("".join(char if char.isprintable() else " " for char in text).split())


def test_the_timeline_tells_an_outcome() -> None:
    console, out = _console(120)
    row: dict[str, Any] = {"outcome": "matched", "definition": "won", "reason": None, "source": "crm"}
    timeline = Timeline(console)
    timeline.outcome(row | {"llm_calls": 2, "tokens": 7})
    timeline.outcome(
        row | {"outcome": "unknown_token", "definition": None, "source": None, "llm_calls": 0, "tokens": 0}
    )
    first, second = out.getvalue().splitlines()
    assert "matched       crm             won  2 calls, 7 tokens" in first
    assert "unknown_token -" in second and "no model call" in second


def test_a_check_that_does_not_hold_is_wrong() -> None:
    console, out = _console()
    assert summary.show_checks(console, [Check("a", "1", "1")])
    assert "WRONG" not in out.getvalue()
    assert not summary.show_checks(console, [Check("a", "1", "1"), Check("b", "1", "2")])
    assert "WRONG" in out.getvalue()


def test_times_are_taken_from_the_first_message_of_an_events_cycle() -> None:
    console, out = _console()
    backlog: list[dict[str, Any]] = [
        {"received_at": "2026-01-01T00:00:00+00:00", "matched_at": "2026-01-01T00:00:02+00:00", "cycle_id": "c"},
        {"received_at": "2026-01-01T00:00:00+00:00", "matched_at": "2026-01-01T00:00:04+00:00", "cycle_id": None},
    ]
    messages: list[dict[str, Any]] = [
        {"cycle_id": "c", "sent_at": "2026-01-01T00:00:09+00:00"},
        {"cycle_id": "c", "sent_at": "2026-01-01T00:00:05+00:00"},
        {"cycle_id": None, "sent_at": "2026-01-01T00:00:03+00:00"},
        {"cycle_id": "c", "sent_at": None},
    ]
    summary.show_times(console, backlog, messages)
    assert out.getvalue().splitlines() == [
        "HTTP to pending: median 3.00 s, longest 4.00 s (2 events)",
        "pending to message: median 3.00 s, longest 3.00 s (1 events)",
    ]


def test_costs() -> None:
    console, out = _console()
    stats = {"outcomes": {"matched": {"llm_calls": 3}, "no_match": {"llm_calls": 2}}, "tokens": {"fast": 10}}
    summary.show_costs(console, stats, [{"steps": 2}, {"steps": 3}])
    assert out.getvalue().strip() == "Model calls: 5 to classify (10 tokens), 5 in 2 cycles (0 tokens)"
