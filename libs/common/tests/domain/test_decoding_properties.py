"""What holds for any bytes at all."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from room_common.domain.decoding import MAX_ITEMS, Decoded, Undecodable, decode_payload
from room_common.domain.json_slices import array_elements, nests_deeper
from room_common.domain.jsonview import Json, json_text

JSON = "application/json"

often = settings(deadline=None, max_examples=150)

content_types = st.sampled_from(
    [
        None,
        JSON,
        "application/x-www-form-urlencoded",
        "text/plain",
        "text/xml",
        "application/json; charset=utf-16",
        "application/json; charset=iso-2022-jp",
        "application/x-www-form-urlencoded; charset=shift_jis",
        "image/png",
    ]
) | st.text(max_size=40)
codings = st.sampled_from(["", "gzip", "deflate", "gzip, deflate", "br"]) | st.text(max_size=10)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
documents = st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=4), values, max_size=4)
pieces = st.lists(
    st.sampled_from(
        [
            b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"a"', rb"\ud83d", rb"\u0000", b"1e400", b"-", b"null",
            b"12345678901234567", b"NaN", b" ", b"\n", b"\xe9", b"\xef\xbb\xbf", b"payload=", b"%7B", b"%", b"&", b"=",
            b"\x00", b"'",
        ]
    ),
    max_size=40,
).map(b"".join)  # fmt: skip


def depth_of(view: Json) -> int:
    if isinstance(view, dict):
        return 1 + max((depth_of(value) for value in view.values()), default=0)
    if isinstance(view, list):
        return 1 + max((depth_of(value) for value in view), default=0)
    return 0


def leaves(view: Json) -> list[Json]:
    if isinstance(view, dict):
        return [*view, *(leaf for value in view.values() for leaf in leaves(value))]
    if isinstance(view, list):
        return [leaf for value in view for leaf in leaves(value)]
    return [view]


def assert_safe(view: Json) -> None:
    text = json_text(view)
    assert "\x00" not in text
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode("utf-8")
    assert depth_of(view) <= 64
    for leaf in leaves(view):
        assert leaf is None or type(leaf) in (bool, int, float, str)
        assert not isinstance(leaf, float) or math.isfinite(leaf)
        assert not isinstance(leaf, str) or not any(ord(character) in range(0xD800, 0xE000) for character in leaf)


def same(one: Json, other: Json) -> bool:
    return json_text(one) == json_text(other)


@often
@given(
    body=st.binary(max_size=200) | pieces | pieces.map(gzip.compress),
    content_type=content_types,
    coding=codings,
    split=st.booleans(),
)
@example(body=b"\x00\x00", content_type=JSON, coding="", split=False)
@example(body=b"\xff\xfe\x00", content_type="text/plain", coding="", split=False)
def test_any_bytes_decode_or_have_a_reason(body: bytes, content_type: str | None, coding: str, split: bool) -> None:
    decoded = decode_payload(body, content_type, {"content-encoding": coding}, split=split)
    if isinstance(decoded, Undecodable):
        assert decoded.reason.value
        return
    assert 1 <= len(decoded.items) <= MAX_ITEMS
    assert [item.index for item in decoded.items] == list(range(len(decoded.items)))
    for item in decoded.items:
        assert (item.view is None) is (item.problem is not None)
        assert_safe(item.view)
        again = decode_payload(
            item.raw, item.content_type, {"content-encoding": item.content_encoding or ""}, split=False
        )
        if item.problem is not None:
            assert again == Undecodable(item.problem)
        else:
            assert isinstance(again, Decoded)
            assert same(again.items[0].view, item.view)
            assert again.items[0].changes == item.changes


@often
@given(document=documents, indent=st.sampled_from([None, 1]), escaped=st.booleans())
def test_ordinary_json_comes_out_as_it_went_in(document: Json, indent: int | None, escaped: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=escaped)
    text = text.replace("\\u0000", "?")
    expected = json.loads(text)
    decoded = decode_payload(text.encode(), JSON, {}, split=False)
    assert isinstance(decoded, Decoded)
    assert same(decoded.items[0].view, expected)
    assert decoded.items[0].changes == ()


@often
@given(document=documents, indent=st.sampled_from([None, 1]), escaped=st.booleans())
def test_the_fast_and_the_strict_path_agree(document: Json, indent: int | None, escaped: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=escaped)
    plain = decode_payload(text.encode(), JSON, {}, split=False)
    forced = decode_payload(rb'{"force":"\u0000","document":' + text.encode() + b"}", JSON, {}, split=False)
    assert isinstance(plain, Decoded)
    assert isinstance(forced, Decoded)
    view = forced.items[0].view
    assert isinstance(view, dict)
    assert same(view["document"], plain.items[0].view)


@often
@given(number=st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
@example(number="1e-400")
@example(number="5e-324")
@example(number="999999999999999.9")
def test_no_number_loses_a_digit(number: str) -> None:
    decoded = decode_payload(f"[{number}]".encode(), JSON, {}, split=False)
    assert isinstance(decoded, Decoded)
    view = decoded.items[0].view
    assert isinstance(view, list)
    assert Decimal(str(view[0])) == Decimal(number)


@often
@given(elements=st.lists(values, min_size=1, max_size=8), space=st.sampled_from([b"", b" ", b"\n\t"]))
def test_elements_are_exactly_their_slices(elements: list[Json], space: bytes) -> None:
    texts = [json.dumps(element, ensure_ascii=False).encode("utf-8") for element in elements]
    body = space + b"[" + (space + b"," + space).join(texts) + space + b"]" + space
    assert array_elements(body) == texts


@often
@given(text=pieces | st.binary(max_size=100), limit=st.integers(0, 6))
def test_depth_agrees_with_a_parser_on_valid_json(text: bytes, limit: int) -> None:
    deeper = nests_deeper(text, limit)
    try:
        view: Json = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    assert deeper is (depth_of(view) > limit)


@often
@given(document=documents, limit=st.integers(0, 6))
def test_depth_of_documents(document: Json, limit: int) -> None:
    assert nests_deeper(json.dumps(document).encode(), limit) is (depth_of(document) > limit)
