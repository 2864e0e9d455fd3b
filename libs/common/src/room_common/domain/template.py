"""Interpretation prompts with values of the payload in them: ``{{payload}}``, ``{{ payload.a.b.0.c }}``.

One pass over the template: a value that itself contains ``{{payload}}`` is not expanded again. Anything that isn't
exactly such a reference stays as the operator wrote it.
"""

from __future__ import annotations

import re

from room_common.domain.fence import fence, fence_inline
from room_common.domain.jsonview import Json, json_text

_REFERENCE = re.compile(r"\{\{\s*+payload((?:\.[^\s{}.]++)*+)\s*+\}\}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")


def render_template(template: str, payload: Json, *, nonce: str) -> str:
    """The template with each reference replaced by its value, fenced as data; what is missing or null becomes nothing.

    Strings are shown raw, numbers and booleans as text, objects and arrays as indented JSON.
    """

    def value_of(reference: re.Match[str]) -> str:
        return _rendered(_find(payload, reference[1].split(".")[1:]), nonce)

    return _REFERENCE.sub(value_of, template)


def is_reference(text: str) -> bool:
    """Whether ``text``, braces and all, is a reference that gets a value."""
    return _REFERENCE.fullmatch(text) is not None


def _find(payload: Json, path: list[str]) -> Json:
    found = payload
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and _INDEX.fullmatch(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _rendered(value: Json, nonce: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return fence_inline(value, nonce, "value")
    if isinstance(value, (dict, list)):
        return fence(json_text(value, pretty=True), nonce, "value")
    return fence_inline(json_text(value), nonce, "value")
