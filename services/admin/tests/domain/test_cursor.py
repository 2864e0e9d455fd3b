"""Cursors read back as they were written, and nothing else is one."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain.cursor import decode_cursor, encode_cursor
from room_common.errors import Refused

SHAPES = st.text("tuis", max_size=4)
VALUES = {
    # an offset may lead out of the years that exist, so a day is left at both ends
    "t": st.datetimes(
        min_value=datetime(1, 1, 2),
        max_value=datetime(9999, 12, 30),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))]),
    ),
    "u": st.uuids(),
    "i": st.integers(-(2**31) + 1, 2**31 - 1),
    "s": st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40),
}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@given(st.data(), SHAPES)
def test_a_key_reads_back(data: st.DataObject, shape: str) -> None:
    key = tuple(data.draw(VALUES[kind]) for kind in shape)
    cursor = encode_cursor(key)
    assert decode_cursor(cursor, shape) == key
    assert cursor.isascii() and "=" not in cursor


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"=").decode()), SHAPES)
def test_any_text_is_read_or_refused(text: str, shape: str) -> None:
    try:
        key = decode_cursor(text, shape)
    except Refused as error:
        assert error.reason == "bad_cursor"
    else:
        assert encode_cursor(key) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, SHAPES)
def test_any_json_is_read_or_refused(value: object, shape: str) -> None:
    text = base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
    try:
        key = decode_cursor(text, shape)
    except Refused:
        return
    assert encode_cursor(key) == text


def _raw(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "text",
    [
        _raw("t2026-01-02T03:04:05", "u" + str(UUID(int=1))),  # no offset
        _raw("t2026-01-02T03:04:05+20:00", "u" + str(UUID(int=1))),  # an offset that PostgreSQL refuses
        _raw("t0001-01-01T00:00:00+10:00", "u" + str(UUID(int=1))),  # before the first year
        _raw("t2026-01-02T03:04:05+00:00", "u{" + str(UUID(int=1)) + "}"),  # another spelling
        _raw("t2026-01-02T03:04:05+00:00"),  # too short
        _raw("t2026-01-02T03:04:05+00:00", "u" + str(UUID(int=1)), "i1"),  # too long
        encode_cursor((MOMENT, UUID(int=1))) + "=",
        "~" + encode_cursor((MOMENT, UUID(int=1))),
    ],
)
def test_what_a_list_never_gave_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        decode_cursor(text, "tu")


@pytest.mark.parametrize("number", ["i2147483648", "i-2147483648", "i1_0", "i 1", "i+1", "i01", "i" + "9" * 300])
def test_numbers_out_of_range_or_shape_are_refused(number: str) -> None:
    with pytest.raises(Refused):
        decode_cursor(_raw(number), "i")


def test_the_longest_name_fits_and_a_nul_does_not() -> None:
    key = ("\U0001f6d2" * 120, 1_000_000, UUID(int=1))
    assert decode_cursor(encode_cursor(key), "siu") == key
    with pytest.raises(Refused):
        decode_cursor(_raw("sa\0b"), "s")


def test_a_naive_time_is_not_written() -> None:
    with pytest.raises(ValueError, match="offset"):
        encode_cursor((datetime(2026, 1, 1),))
