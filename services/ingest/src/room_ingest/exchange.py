"""One request, the answer it waits for, and who gives it."""

from __future__ import annotations

from typing import Any, Protocol

from room_ingest.answers import Answer
from room_ingest.domain.request_headers import NO_HEADERS


class Answering(Protocol):
    """The connection, as far as a request knows it."""

    def flush(self) -> None:
        """Write every answer whose turn it is."""


class Exchange:
    """One request and the place of its answer among those of its connection."""

    __slots__ = (
        "body",
        "connection",
        "keep",
        "method",
        "plan",
        "reply",
        "route",
        "started",
        "target",
        "too_large",
        "trace",
        "values",
        "version",
    )

    trace: Any
    """What a traced request keeps here. Not set on others, which it would cost."""

    def __init__(self, connection: Answering) -> None:
        self.connection = connection
        self.method = b""
        self.target = b""
        self.version = "1.1"
        self.plan = NO_HEADERS
        self.values: list[bytes] = []
        """Those of the headers that ``plan`` is for."""
        self.body = b""
        self.keep = False
        self.too_large = False
        self.started = 0.0
        self.reply: Answer | None = None
        self.route = "other"
        """The bounded name under which it is counted; whoever handles it sets it."""

    def answer(self, answer: Answer) -> None:
        """Give the answer. It is written once all earlier requests of the connection have theirs."""
        if self.reply is None:
            self.reply = answer
            self.connection.flush()


class Handler(Protocol):
    """What answers requests."""

    def handle(self, exchange: Exchange) -> None:
        """Call ``exchange.answer`` exactly once, now or later."""

    def answered(self, exchange: Exchange, answer: Answer) -> None:
        """Told of every answer, also of those given before there was a whole request."""
