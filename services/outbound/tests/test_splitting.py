"""Cutting texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_outbound.domain.splitting import split

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ITALY = "\U0001f1ee\U0001f1f9"

texts = st.text() | st.lists(
    st.sampled_from(["a", " ", "\n", "\n\n", "word ", "e\u0301", FAMILY, ITALY, "\U0001f44d\U0001f3fd", "\r\n"]),
    max_size=80,
).map("".join)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@given(texts, st.integers(2, 40))
def test_every_part_fits_and_nothing_is_lost(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(units(part) <= limit and part.strip() for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@given(texts.filter(lambda text: bool(text.strip())), st.integers(40, 60))
def test_what_fits_is_left_alone(text: str, limit: int) -> None:
    if units(text) <= limit:
        assert split(text, limit) == [text]


@given(st.lists(st.sampled_from(["e\u0301", FAMILY, ITALY, "\U0001f44d\U0001f3fd", "a"]), max_size=60))
def test_no_cluster_is_torn_where_it_fits(drawn: list[str]) -> None:
    clusters = [cluster for one in drawn for cluster in (one, "x")]
    parts = split("".join(clusters), 12)
    position = 0
    for part in parts:
        rest = part
        while rest:
            assert rest.startswith(clusters[position]), (parts, clusters)
            rest = rest[len(clusters[position]) :]
            position += 1


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("", 10, []),
        (" \n\n ", 10, []),
        ("abc", 10, ["abc"]),
        ("one\n\ntwo\nthree four", 12, ["one\n\n", "two\n", "three four"]),
        ("one\ntwo three", 10, ["one\n", "two three"]),
        ("onetwothreefour", 6, ["onetwo", "threef", "our"]),
        ("a\n\nbcdefghijklmnopqrst", 16, ["a\n\nbcdefghijklmn", "opqrst"]),
        ("x" * 4000, 3900, ["x" * 3900, "x" * 100]),
        ("\U0001f600" * 3, 4, ["\U0001f600" * 2, "\U0001f600"]),
        ("\U0001f600", 1, ["\U0001f600"]),
    ],
)
def test_cuts(text: str, limit: int, parts: list[str]) -> None:
    assert split(text, limit) == parts


def test_a_cluster_without_end_is_cut_all_the_same() -> None:
    parts = split("e" + "\u0301" * 500, 100)
    assert [len(part) for part in parts] == [100, 100, 100, 100, 100, 1]
