"""Server-sent events as bytes (WHATWG HTML, server-sent events), and what changed between two states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

Row = Mapping[str, Any]

HEARTBEAT: Final = b": still here\n\n"
"""A comment: it keeps proxies from closing a quiet stream, and shows that the client is still there."""


def frame(event: str, data: Mapping[str, Any], event_id: str | None = None) -> bytes:
    """One event; ``data`` as JSON in one line. With ``event_id`` it is a place from which to go on."""
    head = f"event: {event}\n" if event_id is None else f"event: {event}\nid: {event_id}\n"
    return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"


def retry(milliseconds: int) -> bytes:
    """How long a client waits before it connects again."""
    return f"retry: {milliseconds}\n\n".encode()


class States:
    """The last known row of each thing of one kind, and what is new in a later reading of all of them."""

    def __init__(self, key: Callable[[Row], object], ignored: frozenset[str] = frozenset()) -> None:
        self._key = key
        self._ignored = ignored
        self._rows: dict[object, Row] = {}

    @property
    def rows(self) -> Iterable[Row]:
        """All of them, as they were read last."""
        return self._rows.values()

    def changed(self, rows: Iterable[Row]) -> list[Row]:
        """Take over a whole reading: the rows that are new, or differ in more than the ignored columns."""
        read = {self._key(row): row for row in rows}
        found = [row for key, row in read.items() if self._compared(row) != self._compared(self._rows.get(key))]
        self._rows = read
        return found

    def gone(self, rows: Iterable[Row]) -> list[Row]:
        """What is known and not in a reading; asked before :meth:`changed`."""
        read = {self._key(row) for row in rows}
        return [row for key, row in self._rows.items() if key not in read]

    def _compared(self, row: Row | None) -> Row | None:
        return None if row is None else {name: value for name, value in row.items() if name not in self._ignored}
