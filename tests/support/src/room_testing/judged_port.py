"""What a webhook comes to, from the socket to the question: ingest's answer, the record, the matcher's rules on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from room_common.contracts.source_config import Verify
from room_common.domain.batching import splits
from room_common.domain.decoding import Item
from room_matcher.domain.cascade import Accepted, Request, judge
from room_matcher.domain.delivery_identity import identify, is_handshake_confirmation
from room_testing.webhook_port import TOKEN, Answered, Client, MemorySink, Submitted

PUBLIC_URI = "https://hooks.example.test/webhooks/" + TOKEN.decode()
OK = (200, b'{"ok":true}')
TOO_LARGE = (200, b'{"ok":false,"error":"payload_too_large"}')


@dataclass
class Received:
    """One request's answer and outcomes, one per item; ``asked`` stands for what would be put to the model."""

    answer: Answered
    outcomes: list[str] = field(default_factory=list)
    verified: bool = False
    items: list[Item] = field(default_factory=list)
    record: Submitted | None = None

    @property
    def said(self) -> tuple[int, bytes]:
        """Status and body."""
        return self.answer.status, self.answer.body

    @property
    def view(self) -> object:
        """The only item's decoded payload."""
        (item,) = self.items
        return item.view


@dataclass
class Kind:
    """A source: what decides about its deliveries. It remembers what it has seen."""

    type: str
    secrets: tuple[str, ...] = ()
    check: Verify | None = None
    split: bool | None = None
    seen: dict[tuple[str, bytes], int] = field(default_factory=dict)


class JudgedPort:
    """Speaks raw HTTP to a port and judges what it makes durable."""

    def __init__(self, port: int, webhooks: MemorySink) -> None:
        self._port = port
        self._webhooks = webhooks

    async def exchange(self, *data: bytes, answers: int = 1) -> tuple[list[Answered], list[Submitted]]:
        """Send bytes on a connection of their own; the answers, and the records they made."""
        before = len(self._webhooks.records)
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        try:
            found = [await client.ask(*data)]
            found += [await client.answer() for _ in range(answers - 1)]
        finally:
            await client.close()
        return found, self._webhooks.records[before:]

    async def receive(self, source: Kind, *data: bytes) -> Received:
        """Send one request and judge its record, if it made one, as a delivery of ``source``."""
        (answer,), records = await self.exchange(*data)
        if not records:
            return Received(answer)
        (record,) = records
        received = Received(answer, record=record)
        self._judge(source, received, record)
        return received

    def _judge(self, source: Kind, received: Received, record: Submitted) -> None:
        envelope = record.envelope
        request = Request(
            body=record.value,
            content_type=envelope.content_type,
            headers=envelope.http,
            query=envelope.query,
            received_at_s=envelope.received_at_us / 1_000_000,
            too_large=envelope.outcome == "too_large",
        )
        uri = PUBLIC_URI + (f"?{envelope.query}" if envelope.query else "")
        split = splits(source.type, source.split)
        verdict = judge(request, source.type, source.secrets, split=split, uri=uri, check=source.check)
        if not isinstance(verdict, Accepted):
            received.outcomes = [f"{verdict.outcome}: {verdict.reason}"]
            return
        received.verified = verdict.verified
        received.items = list(verdict.items)
        received.outcomes = [_outcome(source, envelope.http, item) for item in verdict.items]


def _outcome(source: Kind, headers: Mapping[str, str], item: Item) -> str:
    if item.problem is not None:
        return f"undecodable: {item.problem}"
    if is_handshake_confirmation(item.view):
        return "handshake"
    identity = identify(source.type, headers, item)
    key = (identity.key, identity.content_sha256)
    source.seen[key] = source.seen.get(key, 0) + 1
    return "duplicate" if source.seen[key] > 1 else "asked"
