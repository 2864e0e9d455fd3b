"""Tables and JSON, whatever is in the values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from room_cli import output
from room_cli.apply_command import _differing, _lines
from room_cli.definition_commands import _DEFINITIONS, _TESTED
from room_cli.delivery_commands import _DELIVERIES
from room_cli.list_commands import _BACKLOG, _CYCLES, _INBOX, _MESSAGES, _SOURCES
from room_cli.output import Column, counted, one_line, print_json, printable, show

HOSTILE = "\x1b[31mred\x1b]0;title\x07[bold]markup[/] :smile: a\rb\tc\x9b1m \u202eright to left \x00\x08"
FIXTURE = [HealthCheck.function_scoped_fixture]

ROW: dict[str, Any] = {
    "received_at": "2026-01-02T03:04:05+00:00",
    "matched_at": "2026-01-02T03:04:05+00:00",
    "started_at": "2026-01-02T03:04:05+00:00",
    "created_at": "2026-01-02T03:04:05+00:00",
    "last_received_at": None,
    "room": "revenue-desk",
    "source": "stripe-billing",
    "name": "stripe-billing",
    "type": "stripe",
    "enabled": True,
    "signed": True,
    "definitions": 2,
    "outcome": "config_unreadable",
    "why": "a definition with a rather long name",
    "llm_calls": 12,
    "tokens": 123456,
    "definition": "a definition with a rather long name",
    "status": "processing",
    "attempts": 3,
    "reason": "wrong_contact",
    "events": 100,
    "replies": 10,
    "steps": 20,
    "id": "01a22e4d-5672-7589-9137-42f3b8fc187e",
    "channel": "local",
    "sender": "+39 333 123 4567",
    "text": "A message that is much longer than what fits on a line, and then some more of it.",
}
TABLES = {
    "deliveries": _DELIVERIES,
    "backlog": _BACKLOG,
    "cycles": _CYCLES,
    "messages": _MESSAGES,
    "inbox": _INBOX,
    "sources": _SOURCES,
    "definitions": _DEFINITIONS,
    "tested": _TESTED,
}


def _shown(
    capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], columns: tuple[Column, ...], width: int
) -> list[str]:
    output.console.width = width
    show(rows, columns, as_json=False, empty="nothing")
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("name", TABLES)
def test_rows_fit_a_line(capsys: pytest.CaptureFixture[str], name: str, width: int) -> None:
    lines = _shown(capsys, [ROW, ROW], TABLES[name], width)
    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)
    whole = {"deliveries": "outcome", "sources": "name", "definitions": "name", "tested": "id"}.get(name, "status")
    assert ROW[whole] in lines[1]
    if name == "cycles":
        assert "42f3b8fc187e" in lines[1]


@pytest.mark.parametrize("name", TABLES)
def test_what_is_left_out_at_80_columns_is_there_at_200(capsys: pytest.CaptureFixture[str], name: str) -> None:
    header = _shown(capsys, [ROW], TABLES[name], 200)[0]
    assert all(column.title in header for column in TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_text_from_outside_is_shown_as_text(capsys: pytest.CaptureFixture[str], name: str) -> None:
    row = {key: HOSTILE if isinstance(value, str) and not key.endswith("_at") else value for key, value in ROW.items()}
    lines = _shown(capsys, [row], TABLES[name], 400)
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "[bold]markup[/] :smile:" in lines[1]


@settings(suppress_health_check=FIXTURE, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4), st.integers(40, 130))
def test_any_text_keeps_its_line(capsys: pytest.CaptureFixture[str], texts: list[str], width: int) -> None:
    lines = _shown(capsys, [ROW | {"text": text} for text in texts], _MESSAGES, width)
    assert len(lines) == len(texts) + 1
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)


@settings(suppress_health_check=FIXTURE, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_json_reads_back(capsys: pytest.CaptureFixture[str], value: object) -> None:
    output.console.width = 20
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_json_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"text": HOSTILE}
    assert "".join(shown.splitlines()).isprintable()
    assert "[bold]markup[/] :smile:" in shown


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) == len(text)
    assert printable(text).replace("\n", "").isprintable()


def _change(before: object, after: object) -> list[str]:
    field = {"field": "mandate", "before": before, "after": after}
    return [line.plain for line in _lines({"kind": "room", "name": "desk", "action": "update", "fields": [field]})]


def test_a_change_is_shown_from_where_it_begins() -> None:
    same = "You watch over the revenue of a small software company. "
    assert _change(True, False) == ["~ room       desk", "      mandate: True -> False"]
    [_, line] = _change(same + "Be brief.", same + "Be long.")
    assert "Be brief." in line and "Be long." in line


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_a_difference_can_be_seen(common: str, before: str, after: str) -> None:
    one, other = _differing(common + before, common + after)
    assert len(one) <= 36 and one.isprintable()
    plain = (common + before + after).isprintable()
    assert (one != other) or common + before == common + after or not plain


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("create", "+ source     crm"),
        ("delete", "- source     crm"),
        ("unchanged", "= source     crm"),
    ],
)
def test_a_line_for_each_thing(action: str, line: str) -> None:
    change = {"kind": "source", "name": "crm", "action": action, "fields": [{"field": "x", "before": None, "after": 1}]}
    assert [shown.plain for shown in _lines(change)] == [line]


def test_one_is_not_many() -> None:
    said = [counted(1, "call"), counted(0, "call"), counted(2, "reply", "replies")]
    assert said == ["1 call", "0 calls", "2 replies"]
