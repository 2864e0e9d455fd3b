"""What a server says of its tools, made safe to show to a model: cut, scrubbed, and known by a hash.

The hash is over everything the server said, also over what is cut off: a tool that says anything else is another tool.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from room_common.domain.fence import scrub
from room_common.domain.jsonview import storable_text

MAX_DESCRIPTION: Final = 1_000
MAX_SCHEMA_BYTES: Final = 16 * 1024
_EMPTY: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool as it is shown."""

    sha256: str
    description: str
    parameters: Mapping[str, Any]


def offer(name: str, description: str | None, schema: Any) -> Offer | None:
    """The tool as a model may see it, None when its schema can't be used."""
    try:
        said = json.dumps([name, description, schema], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    shown = _clean(schema if isinstance(schema, Mapping) and schema.get("type") == "object" else _EMPTY)
    if len(json.dumps(shown)) > MAX_SCHEMA_BYTES:
        return None
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return Offer(digest, _text(description or ""), shown)


def _text(text: str) -> str:
    return scrub(storable_text(text))[:MAX_DESCRIPTION]


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): _clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value
