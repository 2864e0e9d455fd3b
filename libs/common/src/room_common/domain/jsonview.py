"""The decoded form of a payload: plain JSON values that PostgreSQL's jsonb and a model can both take.

A view holds no NUL, no lone surrogate, no NaN or infinity, and nothing deeper than the decoder's limit. Integers may
be larger than 64 bits (up to 401 digits), so views are written with :func:`json_text`: orjson refuses those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def json_text(view: Json | Mapping[str, Json], *, pretty: bool = False, sort_keys: bool = False) -> str:
    """The view as JSON text; ``pretty`` indents by two spaces, ``sort_keys`` gives equal views equal text."""
    separators = (",", ": ") if pretty else (",", ":")
    return json.dumps(
        view,
        ensure_ascii=False,
        allow_nan=False,
        check_circular=False,
        indent=2 if pretty else None,
        separators=separators,
        sort_keys=sort_keys,
    )


def storable_text(text: str) -> str:
    """The text with NUL and lone surrogates, which PostgreSQL and UTF-8 refuse, replaced by U+FFFD."""
    return _UNSTORABLE.sub(REPLACEMENT, text)
