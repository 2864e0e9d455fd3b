"""Take secrets out of what is about to be logged.

This is the net below the rule that secrets, tokens and payloads are not handed to the log in the first place: it
masks what a library's message, an URL in an exception or a careless value brings along. Every function here is total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "[masked]"
MAX_TEXT = 16_384
"""Characters of one string that are kept."""

_MAX_INPUT = 4 * MAX_TEXT
_MAX_DEPTH = 6
_MAX_ITEMS = 100

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # The path segment that is the credential of a webhook or a channel, whatever it looks like.
    (re.compile(r"(/webhooks/)[^/?#\s\"'<>]+", re.I), rf"\1{MASK}"),
    (re.compile(r"(/channels/[^/?#\s\"'<>]+/)[^/?#\s\"'<>]+", re.I), rf"\1{MASK}"),
    # scheme://user:password@host; the password may itself contain anything but blanks.
    (re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s:/@\"']*):[^\s\"'<>]*@", re.I), rf"\1:{MASK}@"),
    # Query strings of paths and URLs.
    (re.compile(r"(/[^\s?\"'<>]*)\?[^\s\"'<>]+"), rf"\1?{MASK}"),
    # Credentials that their names give away: header lines, keyword DSNs, form fields, reprs of mappings.
    (
        re.compile(
            r"(\b(?:proxy-)?authorization|\b(?:set-)?cookie|\bx-[a-z0-9\-]*(?:token|key|signature)[a-z0-9\-]*)"
            r"(\\?[\"']?\s*[:=,]\s*b?)(\\?[\"'])?(?(3)[^\"'\\\n]*|[^\n,;\"']+)",
            re.I,
        ),
        rf"\1\2\3{MASK}",
    ),
    (
        re.compile(
            r"((?:pass(?:word|wd)?|pwd|api[_\-]?key|secret|credential|access[_\-]?token|auth[_\-]?token|bot[_\-]?token|\btoken)"
            r"\\?[\"']?\s*[:=]\s*b?)(\\?[\"'])?(?(2)[^\"'\\\n]*|[^\s,;&\"')}\]]+)",
            re.I,
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"\b(bearer|basic|splunk)\s+[a-z0-9._~+/=\-]{6,}", re.I), rf"\1 {MASK}"),
    # Credentials that their shapes give away.
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64,}", re.I), MASK),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?:sk-[\w\-]{8,}|[srp]k_(?:live|test)_\w{8,}|whsec_[\w+/=\-]{8,}|xox[a-z]-[\w\-]{8,}|xapp-[\w\-]{8,}"
            r"|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w\-]{8,}|shp[a-z]{2,3}_\w{16,}|AKIA[A-Z0-9]{12,}"
            r"|eyJ[\w\-]{5,}\.[\w\-]+\.[\w\-]*)"
        ),
        MASK,
    ),
    (re.compile(r"\d{6,}:[A-Za-z0-9_\-]{30,}"), MASK),
)

_SECRET_NAMES = frozenset(
    [
        *("authorization", "cookie", "set_cookie", "password", "passwd", "secret", "secrets", "private_key", "dsn"),
        *("token", "access_token", "auth_token", "bot_token", "api_key", "apikey", "keys", "token_keys"),
        *("body", "raw_body", "payload"),
    ]
)
_CONTROL = {code: None for code in (*range(9), 11, 12, 13, *range(14, 32), 127)}


def mask_text(text: str) -> str:
    """``text`` without secrets and control characters, of at most ``MAX_TEXT`` characters, always encodable as
    UTF-8."""
    text = text[:_MAX_INPUT].translate(_CONTROL).encode("utf-8", "replace").decode()
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def mask_value(value: Any, name: str = "", depth: int = 0) -> Any:
    """``value`` as something JSON can say, masked: by ``name`` as a whole, else text by text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else str(value)
    if name.lower().replace("-", "_") in _SECRET_NAMES:
        return MASK
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, str):
        return mask_text(value)
    if depth >= _MAX_DEPTH:
        return "[...]"
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {mask_text(str(key)): mask_value(item, str(key), depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [mask_value(item, "", depth + 1) for item in list(value)[:_MAX_ITEMS]]
    try:
        return mask_text(str(value) if isinstance(value, BaseException) else repr(value))
    except Exception:
        return f"[{type(value).__name__}]"
