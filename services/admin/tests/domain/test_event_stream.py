"""Frames of the live feed, and what counts as a change."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain.event_stream import HEARTBEAT, States, frame, retry


def parse(stream: bytes) -> list[tuple[str, str | None, Any]]:
    """What a client that follows the standard makes of a stream."""
    found = []
    for block in stream.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
        if b"data" in fields:
            event_id = fields.get(b"id")
            found.append(
                (
                    fields[b"event"].decode(),
                    None if event_id is None else event_id.decode(),
                    orjson.loads(fields[b"data"]),
                )
            )
    return found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=4))
def test_no_text_breaks_out_of_its_event(rows: list[dict[str, Any]]) -> None:
    stream = retry(2000) + b"".join(frame("row", row, "7") + HEARTBEAT for row in rows)
    assert parse(stream) == [("row", "7", row) for row in rows]


def test_an_event_without_a_place_has_no_id() -> None:
    assert parse(frame("room", {"slug": "desk"})) == [("room", None, {"slug": "desk"})]


def test_states_tell_what_is_new_what_differs_and_what_is_gone() -> None:
    states = States(lambda row: row["id"], ignored=frozenset({"age"}))
    assert states.changed([{"id": 1, "n": 1, "age": 1}, {"id": 2, "n": 1, "age": 1}]) != []
    later = [{"id": 1, "n": 2, "age": 2}, {"id": 3, "n": 1, "age": 2}]
    assert [row["id"] for row in states.gone(later)] == [2]
    assert [row["id"] for row in states.changed(later)] == [1, 3]
    assert states.changed([row | {"age": 9} for row in later]) == []
    assert [row["age"] for row in states.rows] == [9, 9]
