"""Outside text in pages: what can't be seen is named, and nothing else changes."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain import humane
from room_admin.domain.visible import visible
from room_admin.domain.words import short_ids

HIDDEN = [
    chr(point) for point in (0, 7, 8, 0x0D, 0x1B, 0x7F, 0x85, 0x9B, 0xAD, 0x200B, 0x202E, 0x2066, 0xFEFF, 0xE0041)
]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize("char", HIDDEN, ids=lambda char: f"U+{ord(char):04X}")
def test_hidden_characters_are_named(char: str) -> None:
    assert visible(f"a{char}b") == f"a[U+{ord(char):04X}]b"


@pytest.mark.parametrize("text", ["plain", "a\tb\nc", "perché 日本語 שלום", "👩‍👩‍👧", "<b>&amp;", ""])
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert visible("a\r\nb\rc") == "a\nb[U+000D]c"


@given(st.text())
def test_nothing_is_left_that_moves_or_hides(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    for char in shown:
        assert char in "\t\n" or unicodedata.category(char) != "Cc"
        assert unicodedata.bidirectional(char) not in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (980, "980"), (999_499, "999k"), (999_500, "1M"), (12_345, "12.3k"), (5_000_000, "5M")],
)
def test_short_numbers(value: int, shown: str) -> None:
    assert humane.short_number(value) == shown


@given(st.integers(min_value=0, max_value=10**14))
def test_short_numbers_are_short_and_near(value: int) -> None:
    shown = humane.short_number(value)
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(shown[-1], 1)
    assert abs(float(shown.rstrip("kMG").replace(",", "")) * factor - value) <= value * 0.006


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 ms"),
        (0.34, "340 ms"),
        (1.23, "1.2 s"),
        (9.96, "10 s"),
        (240, "4 min"),
        (10_800, "3 h"),
        (-172_800, "2 d"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert humane.duration(seconds) == shown


def test_ago() -> None:
    assert humane.ago(NOW, NOW) == "just now"
    assert humane.ago(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert humane.ago(NOW + timedelta(minutes=5), NOW) == "in 5 min"


@given(st.integers(min_value=-(10**9), max_value=10**9))
def test_every_time_can_be_said(seconds: int) -> None:
    assert humane.ago(NOW + timedelta(seconds=seconds), NOW)


def test_sizes_and_parts() -> None:
    assert [humane.size(value) for value in (None, 0, 999, 1660, 65_536, 2_500_000)] == [
        "–",
        "0 B",
        "999 B",
        "1.66 KB",
        "65.5 KB",
        "2.5 MB",
    ]
    assert [humane.percent(*pair) for pair in ((1, 4), (9, 4), (0, 0))] == [25, 100, 100]


def test_ids_are_cut_to_their_ends() -> None:
    assert short_ids("of 01a22e84-08ff-77f3-b84d-ee0e426f261c/0") == "of …426f261c/0"
