"""Payloads as senders send them: what each becomes, or the reason why it becomes nothing."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Mapping
from urllib.parse import quote_plus

import pytest

from room_common.domain.decoding import MAX_BYTES, Decoded, Item, Reason, Undecodable, decode_payload
from room_common.domain.jsonview import Json

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
GZIP = {"content-encoding": "gzip"}
DEFLATE = {"content-encoding": "deflate"}
NO_HEADERS: Mapping[str, str] = {}


def one(body: bytes, content_type: str | None = JSON, headers: Mapping[str, str] = NO_HEADERS) -> Item:
    decoded = decode_payload(body, content_type, headers, split=False)
    assert isinstance(decoded, Decoded)
    (item,) = decoded.items
    assert item.raw == body
    assert item.index == 0
    assert not item.sliced
    return item


def reason(
    body: bytes, content_type: str | None = JSON, headers: Mapping[str, str] = NO_HEADERS, *, split: bool = False
) -> Reason:
    decoded = decode_payload(body, content_type, headers, split=split)
    assert isinstance(decoded, Undecodable)
    assert decoded.too_large is (decoded.reason is Reason.TOO_LARGE)
    return decoded.reason


@pytest.mark.parametrize(
    "content_type",
    [
        JSON,
        "application/json; charset=utf-8",
        'Application/JSON ;charset="UTF-8"',
        "application/vnd.github+json",
        "application/cloudevents+json; charset=utf8",
        "text/json",
        "text/plain",
        "text/plain; charset=UTF-8",
        "application/octet-stream",
        "application/x-of-ours",
        "",
        None,
        FORM,
        "\x00;;;=,charset=",
    ],
)
def test_json_is_read_however_it_is_declared(content_type: str | None) -> None:
    assert one(b' {"a": [1, "caf\xc3\xa9"]}\r\n', content_type).view == {"a": [1, "café"]}


def test_the_content_type_may_come_from_the_headers() -> None:
    assert one(b"a=1", None, {"content-type": FORM}).view == {"a": "1"}


# Form bodies: GitHub's default, Slack's interactive messages, plain fields.


@pytest.mark.parametrize("content_type", [FORM, f"{FORM}; charset=UTF-8", f"{FORM.upper()};charset=utf-8"])
def test_a_payload_field_with_json_is_unwrapped(content_type: str) -> None:
    payload = {"ref": "refs/heads/main", "note": "a+b & c=d é", "list": [1, {"x": None}]}
    body = b"payload=" + quote_plus(json.dumps(payload)).encode()
    assert one(body, content_type).view == payload


def test_a_payload_field_beside_others_is_unwrapped_too() -> None:
    assert one(b"token=t&payload=%7B%22a%22%3A1%7D", FORM).view == {"a": 1}


@pytest.mark.parametrize(
    ("body", "view"),
    [
        (b"text=hello+world&user=%C3%A9&empty=", {"text": "hello world", "user": "é", "empty": ""}),
        (b"tag=a&tag=b&one=1", {"tag": ["a", "b"], "one": "1"}),
        (b"payload=hello", {"payload": "hello"}),
        (b"payload=%7B%7D&payload=%7B%7D", {"payload": ["{}", "{}"]}),
        (b"hello", {"hello": ""}),
        (b"a=%00x&b%00=2", {"a": "\ufffdx", "b\ufffd": "2"}),
    ],
)
def test_other_forms_become_an_object_of_their_fields(body: bytes, view: Json) -> None:
    assert one(body, FORM).view == view


def test_a_form_keeps_its_charset() -> None:
    assert one(b"name=caf%E9", f"{FORM}; charset=iso-8859-1").view == {"name": "café"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"name=caf%E9", Reason.INVALID_ENCODING),
        (b"&".join([b"a=1"] * 10_001), Reason.TOO_MANY_KEYS),
        (b"&&&", Reason.EMPTY),
        (b"payload=%7B%22a%22%3ANaN%7D", Reason.INVALID_JSON),
        (b"payload=" + b"[" * 65 + b"]" * 65, Reason.TOO_DEEP),
        (b'{"a":NaN}', Reason.INVALID_JSON),
        (b"42", Reason.NOT_AN_OBJECT),
    ],
)
def test_forms_that_cannot_be_read(body: bytes, expected: Reason) -> None:
    assert reason(body, FORM) is expected


# Text and XML.


@pytest.mark.parametrize("content_type", ["text/plain", "text/html; charset=utf-8", "text/csv"])
def test_text_becomes_a_text_field(content_type: str) -> None:
    assert one("però, sì".encode(), content_type).view == {"text": "però, sì"}


@pytest.mark.parametrize("content_type", ["text/xml", "application/xml", "application/soap+xml"])
def test_xml_becomes_a_text_field(content_type: str) -> None:
    assert one(b"<a>1</a>", content_type).view == {"text": "<a>1</a>"}


def test_xml_that_declares_its_charset_is_read_in_it() -> None:
    body = '<?xml version="1.0" encoding="ISO-8859-1"?><a>è</a>'
    assert one(body.encode("latin-1"), "text/xml").view == {"text": body}


def test_text_with_nul_is_shown_without() -> None:
    item = one(b"a\x00b", "text/plain")
    assert item.view == {"text": "a\ufffdb"}
    assert item.changes == ("nul_replaced at /text",)


def test_text_that_only_opens_brackets_is_text() -> None:
    assert one(b"see " + b"[" * 100, "text/plain").view == {"text": "see " + "[" * 100}


def test_json_in_plain_text_that_is_too_deep_is_not_shown_as_text() -> None:
    assert reason(b"[" * 20_000 + b"]" * 20_000, "text/plain") is Reason.TOO_DEEP


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "image/svg", "application/pdf"])
def test_other_media_types_are_named(content_type: str) -> None:
    assert reason(b"--x\r\nContent-Disposition: form-data", content_type) is Reason.UNSUPPORTED_MEDIA_TYPE


def test_sns_sends_json_as_plain_text() -> None:
    body = b'{"Type":"SubscriptionConfirmation","TopicArn":"arn:aws:sns:eu-west-1:1:t"}'
    view = one(body, "text/plain; charset=UTF-8").view
    assert view == {"Type": "SubscriptionConfirmation", "TopicArn": "arn:aws:sns:eu-west-1:1:t"}


# Compression.


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", " gzip ", "gzip, identity"])
def test_gzip_is_inflated_and_the_raw_bytes_kept(coding: str) -> None:
    view = {"text": "x" * 10_000}
    item = one(gzip.compress(json.dumps(view).encode()), JSON, {"content-encoding": coding})
    assert item.view == view
    assert item.content_encoding == coding


def test_deflate_is_inflated_wrapped_or_bare() -> None:
    bare = zlib.compressobj(wbits=-15)
    assert one(zlib.compress(b'{"a":1}'), JSON, DEFLATE).view == {"a": 1}
    assert one(bare.compress(b'{"a":1}') + bare.flush(), JSON, DEFLATE).view == {"a": 1}


def test_codings_are_undone_in_reverse_and_members_joined() -> None:
    twice = gzip.compress(zlib.compress(b'{"a":1}'))
    assert one(twice, JSON, {"content-encoding": "deflate, gzip"}).view == {"a": 1}
    assert one(gzip.compress(b'{"a"') + gzip.compress(b":1}") + b"\0\0", JSON, GZIP).view == {"a": 1}


@pytest.mark.parametrize("coding", ["identity", "utf-8", ""])
def test_codings_that_code_nothing(coding: str) -> None:
    assert one(b'{"a":1}', JSON, {"content-encoding": coding}).view == {"a": 1}


@pytest.mark.parametrize(
    ("bomb", "headers"),
    [
        (gzip.compress(b"0" * 60_000_000), GZIP),
        (zlib.compress(b"0" * 60_000_000), DEFLATE),
        (gzip.compress(gzip.compress(b"0" * 60_000_000)), {"content-encoding": "gzip, gzip"}),
    ],
    ids=["gzip", "deflate", "gzip twice"],
)
def test_inflating_stops_at_the_cap(bomb: bytes, headers: Mapping[str, str]) -> None:
    tracemalloc.start()
    try:
        assert reason(bomb[:MAX_BYTES], JSON, headers) is Reason.TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize(("size", "fits"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_the_cap_is_exact_after_inflating(compress: type, size: int, fits: bool) -> None:
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    headers = GZIP if compress is gzip.compress else DEFLATE
    decoded = decode_payload(compress(body), JSON, headers, split=False)
    assert isinstance(decoded, Decoded) is fits
    assert fits or decoded == Undecodable(Reason.TOO_LARGE)


def test_the_cap_counts_bytes() -> None:
    body = b'{"a":"' + "€".encode() * ((MAX_BYTES - 8) // 3) + b"xx" + b'"}'
    assert len(body) == MAX_BYTES
    assert isinstance(one(body).view, dict)
    assert reason(body + b" ") is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "coding", "expected"),
    [
        (gzip.compress(b'{"a":1}')[:-3], "gzip", Reason.BAD_COMPRESSION),
        (gzip.compress(b'{"a":1}')[:-1] + b"\xff", "gzip", Reason.BAD_COMPRESSION),
        (gzip.compress(b'{"a":1}') + b"junk", "gzip", Reason.BAD_COMPRESSION),
        (gzip.compress(b"") * 3000, "gzip", Reason.BAD_COMPRESSION),
        (b'{"a":1}', "gzip", Reason.BAD_COMPRESSION),
        (b'{"a":1}', "deflate", Reason.BAD_COMPRESSION),
        (zlib.compress(b'{"a":1}') + b"x", "deflate", Reason.BAD_COMPRESSION),
        (gzip.compress(b""), "gzip", Reason.EMPTY),
        (b'{"a":1}', "br", Reason.UNSUPPORTED_COMPRESSION),
        (b'{"a":1}', "gzip, gzip, gzip, gzip", Reason.UNSUPPORTED_COMPRESSION),
    ],
)
def test_broken_compression_is_named(body: bytes, coding: str, expected: Reason) -> None:
    assert reason(body, JSON, {"content-encoding": coding}) is expected


# Text that PostgreSQL or a model cannot take.


@pytest.mark.parametrize(
    ("body", "view", "changes"),
    [
        (
            rb'{"a":"x\u0000y","k\u0000":1}',
            {"a": "x\ufffdy", "k\ufffd": 1},
            ("nul_replaced at /a", "nul_replaced_in_key at /"),
        ),
        (rb'[{"b":["\u0000"]}]', [{"b": ["\ufffd"]}], ("nul_replaced at /0/b/0",)),
        (rb'{"a":"\\u0000"}', {"a": "\\u0000"}, ()),
        (rb'{"a":"\ud83d"}', {"a": "\ufffd"}, ("surrogate_replaced at /a",)),
        (rb'{"a":"\ude00\ud83d"}', {"a": "\ufffd\ufffd"}, ("surrogate_replaced at /a",)),
        (
            rb'{"\udfff":"\ud800x"}',
            {"\ufffd": "\ufffdx"},
            ("surrogate_replaced_in_key at /", "surrogate_replaced at /\ufffd"),
        ),
        (rb'{"a":"\ud83d\ude00 \udbff\udfff"}', {"a": "\U0001f600 \U0010ffff"}, ()),
        (rb'{"a":"\u0000\ud800"}', {"a": "\ufffd\ufffd"}, ("nul_replaced at /a", "surrogate_replaced at /a")),
        (rb'{"a":1,"a":2}', {"a": 2}, ("duplicate_key at /a",)),
        (rb'{"o":{"x":1,"y":2,"x":{"z":3}}}', {"o": {"x": {"z": 3}, "y": 2}}, ("duplicate_key at /o/x",)),
        (
            rb'{"\u0000":1,"\ud800":2}',
            {"\ufffd": 2},
            ("nul_replaced_in_key at /", "surrogate_replaced_in_key at /", "duplicate_key at /\ufffd"),
        ),
        (rb'{"a/b~c":"\u0000"}', {"a/b~c": "\ufffd"}, ("nul_replaced at /a~1b~0c",)),
    ],
)
def test_what_cannot_be_stored_is_replaced_and_listed(body: bytes, view: Json, changes: tuple[str, ...]) -> None:
    item = one(body)
    assert item.view == view
    assert item.changes == changes


def test_the_list_of_changes_is_bounded() -> None:
    item = one(b"[" + b",".join([rb'"\u0000"'] * 5000) + b"]")
    assert len(item.changes) == 51
    assert item.changes[-1] == "and 4950 more"


@pytest.mark.parametrize(
    ("number", "value", "changed"),
    [
        ("18446744073709551616", 2**64, False),
        ("-99999999999999999999", -99999999999999999999, False),
        ("9" * 401, int("9" * 401), False),
        ("9" * 402, "9" * 402, True),
        ("1" * 5000, "1" * 5000, True),
        ("1e300", 1e300, False),
        ("1e400", "1e400", True),
        ("-1E+401", "-1E+401", True),
        ("1e131071", "1e131071", True),
        ("1e" + "9" * 500, "1e" + "9" * 500, True),
        ("1e-500", "1e-500", True),
        ("0.1", 0.1, False),
        ("1.10000000000000000000", 1.1, False),
        ("0.10000000000000000000001", "0.10000000000000000000001", True),
        ("-0.0", 0.0, False),
        ("2.5e-8", 2.5e-8, False),
    ],
)
def test_numbers_are_exact_or_kept_as_text(number: str, value: Json, changed: bool) -> None:
    item = one(f'{{"n":{number}}}'.encode())
    assert item.view == {"n": value}
    assert isinstance(item.view, dict)
    assert type(item.view["n"]) is type(value)
    assert item.changes == (("number_as_text at /n",) if changed else ())


# Charsets.


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"a":"caf\xe9"}', "application/json; charset=iso-8859-1"),
        (b'{"a":"caf\xe9"}', 'application/json;charset="windows-1252"'),
        (b'\xef\xbb\xbf{"a":"caf\xc3\xa9"}', JSON),
        (b'\xef\xbb\xbf{"a":"caf\xc3\xa9"}', "application/json; charset=iso-8859-1"),
        ('{"a":"café"}'.encode("utf-16"), JSON),
        ('{"a":"café"}'.encode("utf-16-be"), JSON),
        ('{"a":"café"}'.encode("utf-16-le"), "application/json; charset=utf-16"),
        ('{"a":"café"}'.encode("utf-32"), "application/json; charset=utf-8"),
        ('{"a":"café"}'.encode("utf-32-be"), None),
        ('{"a":"café"}'.encode("utf-32-le"), None),
        ('{"a":"café"}'.encode(), "application/json; charset=no-such-thing"),
    ],
)
def test_charsets_and_marks_are_honoured(body: bytes, content_type: str | None) -> None:
    assert one(body, content_type).view == {"a": "café"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"a":"caf\xe9"}', JSON),
        (b'{"a":"caf\xe9"}', None),
        (b'{"a":"\xed\xa0\xbd"}', JSON),
        (b'{"a":"\xc0\xaf"}', JSON),
        (b"\xff", "text/plain"),
        (b'{"a":"caf\xe9"}', "application/json; charset=us-ascii"),
        (b'{"a":"\xe9"}', "application/json; charset=zlib"),
        (b'\xff\xfe{"a":1}', JSON),
    ],
)
def test_wrong_encodings_are_named(body: bytes, content_type: str | None) -> None:
    assert reason(body, content_type) is Reason.INVALID_ENCODING


# What is not JSON, or not an event.


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":NaN}', Reason.INVALID_JSON),
        (b'{"a":-Infinity}', Reason.INVALID_JSON),
        (b"[Infinity]", Reason.INVALID_JSON),
        (b"NaN", Reason.INVALID_JSON),
        (b"{'a':1}", Reason.INVALID_JSON),
        (b'{"a":1,}', Reason.INVALID_JSON),
        (b'{"a":01}', Reason.INVALID_JSON),
        (b'{"a":1} x', Reason.INVALID_JSON),
        (b'{"a":"x\x00y"}', Reason.INVALID_JSON),
        (b'{"a":"x\ny"}', Reason.INVALID_JSON),
        (b'{"a":1', Reason.INVALID_JSON),
        (b'"' * 65_000, Reason.INVALID_JSON),
        (b"hello", Reason.INVALID_JSON),
        (b"[" * 20_000 + b"]" * 20_000, Reason.TOO_DEEP),
        (b"[" * 65_536, Reason.TOO_DEEP),
        (b'{"a":' * 65 + b"1" + b"}" * 65, Reason.TOO_DEEP),
        (b"{" + b",".join([b'"a":1'] * 10_001) + b"}", Reason.TOO_MANY_KEYS),
        (b"", Reason.EMPTY),
        (b" \r\n\t", Reason.EMPTY),
        (b"\xef\xbb\xbf", Reason.EMPTY),
        (b"null", Reason.NOT_AN_OBJECT),
        (b"42", Reason.NOT_AN_OBJECT),
        (b"-1.5e3", Reason.NOT_AN_OBJECT),
        (b'"text"', Reason.NOT_AN_OBJECT),
        (b"true", Reason.NOT_AN_OBJECT),
        (b"1e999999", Reason.NOT_AN_OBJECT),
        (b"x" * 65_537, Reason.TOO_LARGE),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, None])
def test_what_cannot_be_an_event_is_named(body: bytes, expected: Reason, content_type: str | None) -> None:
    assert reason(body, content_type) is expected


def test_the_depth_limit_is_exact_and_ignores_brackets_in_strings() -> None:
    assert isinstance(one(b"[" * 64 + b"]" * 64).view, list)
    assert reason(b"[" * 65 + b"]" * 65) is Reason.TOO_DEEP
    assert one(b'{"a":"' + b"[" * 1000 + rb"\"[" + b'"}').view == {"a": "[" * 1000 + '"['}


def test_an_array_is_one_item_where_the_source_does_not_batch() -> None:
    assert one(b"[1,2]").view == [1, 2]
    assert one(b"[]").view == []


# Splitting.


def test_a_batch_is_split_into_the_slices_of_its_elements() -> None:
    first, second, third = b'{"eventId": 1, "x": "],[\\"{"}', b'{"eventId":2}', b"[3, {}]"
    body = b" [ " + first + b" ,\n" + second + b"," + third + b"\t]\n"
    decoded = decode_payload(gzip.compress(body), JSON, GZIP, split=True)
    assert isinstance(decoded, Decoded)
    assert [item.raw for item in decoded.items] == [first, second, third]
    assert [item.view for item in decoded.items] == [{"eventId": 1, "x": '],["{'}, {"eventId": 2}, [3, {}]]
    assert [item.index for item in decoded.items] == [0, 1, 2]
    assert all(item.sliced and item.content_encoding is None for item in decoded.items)


def test_a_hundred_events_are_a_hundred_items_and_one_more_is_too_many() -> None:
    events = [{"eventId": number, "objectId": 7} for number in range(100)]
    decoded = decode_payload(json.dumps(events).encode(), JSON, NO_HEADERS, split=True)
    assert isinstance(decoded, Decoded)
    assert [item.view for item in decoded.items] == events
    assert reason(json.dumps([*events, {}]).encode(), split=True) is Reason.TOO_MANY_ITEMS


def test_an_object_of_a_batching_source_is_one_item_of_the_whole_body() -> None:
    decoded = decode_payload(b' {"a":1}', JSON, NO_HEADERS, split=True)
    assert isinstance(decoded, Decoded)
    assert [(item.raw, item.sliced) for item in decoded.items] == [(b' {"a":1}', False)]


def test_an_empty_batch_is_empty() -> None:
    assert reason(b" [ ] ", split=True) is Reason.EMPTY


def test_changes_belong_to_the_element_they_were_made_in() -> None:
    decoded = decode_payload(rb'[{"a":"\u0000"},{"a":1},{"a":1e999,"a":"\ud800"}]', JSON, NO_HEADERS, split=True)
    assert isinstance(decoded, Decoded)
    assert [item.changes for item in decoded.items] == [
        ("nul_replaced at /a",),
        (),
        ("number_as_text at /a", "duplicate_key at /a", "surrogate_replaced at /a"),
    ]


def test_an_element_that_is_no_event_spoils_no_other() -> None:
    decoded = decode_payload(b'[{"a":1}, 2, null, {"b":1}]', JSON, NO_HEADERS, split=True)
    assert isinstance(decoded, Decoded)
    assert [item.problem for item in decoded.items] == [None, Reason.NOT_AN_OBJECT, Reason.NOT_AN_OBJECT, None]
    assert [item.view for item in decoded.items] == [{"a": 1}, None, None, {"b": 1}]


def test_items_of_another_charset_are_slices_of_the_text_in_utf8() -> None:
    decoded = decode_payload('[{"a":"é"}]'.encode("utf-16"), JSON, NO_HEADERS, split=True)
    assert isinstance(decoded, Decoded)
    assert decoded.items[0].raw == '{"a":"é"}'.encode()


def test_payloads_are_not_shown_by_repr() -> None:
    assert "secret" not in repr(decode_payload(b'{"a":"secret"}', JSON, NO_HEADERS, split=False))
