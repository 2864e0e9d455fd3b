"""Bytes to text: the declared charset, a byte order mark where there is one, else UTF-8, strictly.

Only the codecs named here are ever used. Python's registry also has ones that inflate or run in quadratic time, and it
keeps every unknown name it was asked for; a sender must not reach it.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from room_common.domain.reasons import Reason

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_CODECS = {
    "utf8": "utf-8",
    "usascii": "ascii",
    "ascii": "ascii",
    "utf16le": "utf-16-le",
    "utf16be": "utf-16-be",
    "utf32le": "utf-32-le",
    "utf32be": "utf-32-be",
    "latin1": "latin-1",
    "iso88591": "latin-1",
    **{f"iso8859{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)},
    **{f"{prefix}{page}": f"cp{page}" for prefix in ("windows", "cp") for page in range(1250, 1259)},
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macintosh": "mac-roman",
    "shiftjis": "shift_jis",
    "sjis": "shift_jis",
    "windows31j": "cp932",
    "eucjp": "euc_jp",
    "iso2022jp": "iso2022_jp",
    "euckr": "euc_kr",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5",
}

_XML_DECLARATION = re.compile(rb"<\?xml[^>]{0,150}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9._-]{1,40})[\"']")


@dataclass(frozen=True, slots=True)
class Text:
    """Decoded text and the Python codec that gave it."""

    text: str
    codec: str


def decode_text(body: bytes, charset: str | None, *, json_like: bool = False, xml: bool = False) -> Text | Reason:
    """The text of a body, or ``invalid_encoding``.

    A byte order mark wins over the declared charset (as in the WHATWG Encoding Standard). An unknown charset is tried
    as UTF-8. ``json_like`` recognises UTF-16 and UTF-32 without a mark (RFC 4627, section 3); ``xml`` reads the
    charset of an XML declaration.
    """
    codec, start = _codec_of(body, charset, json_like=json_like, xml=xml)
    try:
        return Text(body[start:].decode(codec), codec)
    except UnicodeDecodeError:
        return Reason.INVALID_ENCODING


def _codec_of(body: bytes, charset: str | None, *, json_like: bool, xml: bool) -> tuple[str, int]:
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return codec, len(mark)
    if charset is None and xml and (declared := _XML_DECLARATION.match(body)):
        charset = declared[1].decode("ascii")
    name = re.sub(r"[^a-z0-9]", "", (charset or "").lower()[:40])
    if name in ("utf16", "ucs2", "utf32"):
        order = "be" if body.startswith(b"\0") else "le"
        return f"utf-{'32' if name == 'utf32' else '16'}-{order}", 0
    if name:
        return _CODECS.get(name, "utf-8"), 0
    return (_unmarked_json(body) if json_like else "utf-8"), 0


def _unmarked_json(body: bytes) -> str:
    """JSON starts with ASCII characters, so the zeros among the first four bytes tell the encoding."""
    zeros = tuple(byte == 0 for byte in body[:4])
    if zeros[:2] == (True, True):
        return "utf-32-be"
    if zeros[1:] == (True, True, True):
        return "utf-32-le"
    if zeros[:1] == (True,):
        return "utf-16-be"
    if zeros[1:2] == (True,):
        return "utf-16-le"
    return "utf-8"
