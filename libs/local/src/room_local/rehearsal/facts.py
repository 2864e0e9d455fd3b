"""A line about a payload, put together from the fields that most senders have. Pure and total."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

MOST_FACTS = 6
LONGEST_VALUE = 80
MOST_FIELDS = 2_000

_TELLING = (
    "type",
    "subscriptiontype",
    "action",
    "event",
    "topic",
    "propertyname",
    "propertyvalue",
    "objectid",
    "name",
    "title",
    "subject",
    "full_name",
    "head_branch",
    "status",
    "conclusion",
    "number",
    "amount_paid",
    "amount_due",
    "amount",
    "total",
    "total_price",
    "currency",
    "customer_name",
    "customer_email",
    "email",
    "display_title",
    "text",
    "message",
)
_RANK = {name: rank for rank, name in enumerate(_TELLING)}


def facts(payload: str) -> tuple[str, ...]:
    """Up to six ``name: value`` of a payload's text; what is no JSON is shown by its beginning."""
    try:
        view = json.loads(payload)
    except (ValueError, RecursionError):
        beginning = _short(payload)
        return (beginning,) if beginning else ()
    best: dict[str, tuple[int, int, str]] = {}
    for depth, name, value in _fields(view):
        rank = _RANK.get(name.lower())
        if rank is None or not value:
            continue
        known = best.get(name.lower())
        if known is None or depth < known[0]:
            best[name.lower()] = (depth, rank, f"{name}: {value}")
    chosen = sorted(best.values(), key=lambda fact: fact[1])[:MOST_FACTS]
    return tuple(text for _depth, _rank, text in chosen)


def _fields(view: object) -> Iterator[tuple[int, str, str]]:
    """(depth, name, value) of the scalar fields, breadth first, without recursion."""
    level: list[tuple[str, object]] = [("", view)]
    depth = seen = 0
    while level and seen < MOST_FIELDS:
        deeper: list[tuple[str, object]] = []
        for name, value in level:
            seen += 1
            if isinstance(value, Mapping):
                deeper += [(str(key), inner) for key, inner in value.items()]
            elif isinstance(value, list):
                deeper += [(name, inner) for inner in value[:20]]
            elif value is not None:
                yield depth, name, _short(value if isinstance(value, str) else json.dumps(value))
        level = deeper
        depth += 1


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_VALUE else line[: LONGEST_VALUE - 1] + "…"
