"""Outside text as it may be put before a person: characters that can't be seen, or that move others, are named."""

from __future__ import annotations

import re
from typing import Final

# Controls but tab and line feed, marks that turn text around, separators, invisible letters, and tag characters, in
# which a text for machines can hide. Joiners stay: scripts and emoji are written with them.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with every hidden character written as its code point: ``[U+202E]``. A CR before an LF is dropped."""
    return _HIDDEN.sub(_named, text.replace("\r\n", "\n"))


def _named(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"
