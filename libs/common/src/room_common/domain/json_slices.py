"""The shape of JSON text without parsing it: how deep it nests, and where the elements of a top-level array lie."""

from __future__ import annotations

import re

# Strings are skipped whole; the possessive quantifiers keep the scan linear, an unclosed string included.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BRACKETS = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_BRACKETS_AND_COMMAS = re.compile(_STRING + rb"|[\[\]{},]", re.DOTALL)
_WHITESPACE = b" \t\r\n"


def nests_deeper(text: bytes, limit: int) -> bool:
    """Whether brackets open to more than ``limit`` levels; ``text`` may be anything."""
    depth = 0
    for token in _BRACKETS.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def array_elements(text: bytes) -> list[bytes]:
    """The bytes of each element of a top-level array, outer whitespace removed. ``text`` must be valid JSON."""
    elements = []
    depth = 0
    start = 0
    for token in _BRACKETS_AND_COMMAS.finditer(text):
        at = token.start()
        first = text[at]
        if first in b"[{":
            depth += 1
            if depth == 1:
                start = at + 1
        elif first in b"]}":
            depth -= 1
        if (depth == 1 and first in b",") or (depth == 0 and first in b"]"):
            elements.append(text[start:at].strip(_WHITESPACE))
            start = at + 1
    return [] if elements == [b""] else elements
