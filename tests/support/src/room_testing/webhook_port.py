"""A webhook port on a real socket in the test's own loop, with a sink in memory behind it, and a raw client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from prometheus_client import CollectorRegistry

from room_common.contracts.envelope import Envelope, decode
from room_common.domain.tokens import TokenKeys, make_token
from room_common.kafka.records import Record
from room_ingest.batches import NO_IDENTITY, Partition, build
from room_ingest.metrics import IngestMetrics
from room_ingest.server import Server
from room_ingest.sink import Parcel

KEYS = TokenKeys((b"k" * 32,))
TOKEN = make_token(KEYS, b"t" * 24).encode()
OTHER_TOKEN = make_token(KEYS, b"o" * 24).encode()
FORGED = b"0" * 64
CLOSED = b""


class Submitted:
    """One record as the sink got it, read back with Kafka's own format."""

    def __init__(self, parcel: Parcel) -> None:
        self.parcel = parcel
        self.key = parcel.key
        self.value = parcel.value

    def done(self, written: bool) -> None:
        """Tell the request."""
        self.parcel.done(written)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        record = read_records([self.parcel])[0]
        assert (record.key, record.value) == (self.key, self.value)
        return list(record.headers)

    @property
    def envelope(self) -> Envelope:
        return decode(Record("t", 0, 0, 0, self.key, self.value, tuple(self.headers)))


def plain_parcel(headers: bytes = b"\0", key: bytes = b"k", value: bytes = b"v") -> Parcel:
    """A record that nobody waits for."""
    parcel = Parcel()
    parcel.key, parcel.value, parcel.headers, parcel.spread, parcel.born = key, value, headers, 0, 0.0
    return parcel


def read_records(parcels: Sequence[Parcel]) -> list[Any]:
    """What aiokafka reads of a batch that was built from ``parcels``."""
    partition = Partition(b"t", 0)
    partition.pending = list(parcels)
    build(partition, NO_IDENTITY, 0)
    assert partition.batch is not None
    batch = DefaultRecordBatch(partition.batch.raw)
    assert batch.validate_crc()
    return list(batch)


@dataclass
class MemorySink:
    """Takes records; acknowledges at once (``auto``), or when the test says so."""

    topic: str = "t"
    auto: bool | None = True
    records: list[Submitted] = field(default_factory=list)

    def submit(self, parcel: Parcel) -> None:
        self.records.append(Submitted(parcel))
        if self.auto is not None:
            asyncio.get_running_loop().call_soon(parcel.done, self.auto)

    async def arrived(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.records) < count:
                await asyncio.sleep(0.005)


@dataclass
class Answered:
    """One answer as read from the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A raw connection. Reads whole answers; ``rest`` is what comes until the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self, *, body: bool = True) -> Answered:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
            length = int(headers.get("content-length", "0")) if body else 0
            return Answered(int(lines[0].split()[1]), headers, await self.reader.readexactly(length))

    async def rest(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def ask(self, *parts: bytes) -> Answered:
        await self.send(*parts)
        return await self.answer()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@dataclass
class Port:
    """A running webhook port."""

    server: Server
    webhooks: MemorySink
    replies: MemorySink
    metrics: IngestMetrics
    registry: CollectorRegistry
    connect: Callable[[], Awaitable[Client]]

    def count(self, answer: str, route: str = "webhooks") -> int:
        return sum(count for given, count in self.metrics.routes[route].answers.items() if given.name == answer)


OpenPort = Callable[..., Awaitable[Port]]


def post(
    body: bytes = b"{}",
    *,
    token: bytes = TOKEN,
    path: bytes | None = None,
    headers: tuple[bytes, ...] = (),
    length: int | None = None,
) -> bytes:
    """A POST with Content-Length."""
    target = b"/webhooks/" + token if path is None else path
    lines = [
        b"POST %b HTTP/1.1" % target,
        b"Host: room.test",
        b"Content-Length: %d" % (len(body) if length is None else length),
    ]
    return b"\r\n".join([*lines, *headers]) + b"\r\n\r\n" + body
