"""Senders that keep posting webhooks with numbered bodies, note every answer, and compare with what is in the topic."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition


@dataclass
class Load:
    """``senders`` connections, each with one request at a time, until :meth:`stop`.

    ``accepted`` are the numbers answered 200; ``cut`` counts requests that were sent and got no answer, ``refused``
    connections that could not be made.
    """

    port: int
    tokens: Sequence[str]
    senders: int = 8
    size: int = 300
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    accepted: set[int] = field(default_factory=set)
    answers: Counter[int] = field(default_factory=Counter)
    cut: int = 0
    refused: int = 0
    sent: int = 0
    longest: float = 0.0
    _stopping: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._sender()) for _ in range(self.senders)]

    async def stop(self) -> None:
        """Send nothing new; wait for the answers."""
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 30)

    async def reached(self, accepted: int, timeout: float = 60) -> None:
        """Wait until so many were answered 200."""
        async with asyncio.timeout(timeout):
            while len(self.accepted) < accepted:
                await asyncio.sleep(0.01)

    async def _sender(self) -> None:
        while not self._over():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                self.refused += 1
                await asyncio.sleep(0.05)
                continue
            try:
                while await self._post(reader, writer) and not self._over():
                    pass
            finally:
                writer.close()

    def _over(self) -> bool:
        return self._stopping

    async def _post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request. False when the connection is over."""
        number = self.sent
        self.sent += 1
        body = b'{"run":"%b","n":%d,"text":"%b"}' % (self.run.encode(), number, b"x" * self.size)
        token = self.tokens[number % len(self.tokens)].encode()
        begun = asyncio.get_running_loop().time()
        try:
            writer.write(
                b"POST /webhooks/%b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (token, len(body)) + body
            )
            async with asyncio.timeout(20):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.cut += 1
            return False
        status = int(head.split()[1])
        self.answers[status] += 1
        self.longest = max(self.longest, asyncio.get_running_loop().time() - begun)
        if status == 200:
            self.accepted.add(number)
        else:
            await asyncio.sleep(0.02)
        return b"connection: close" not in head


@dataclass
class Topic:
    """What is in a topic from a moment on."""

    bootstrap: str
    name: str
    start: dict[TopicPartition, int] = field(default_factory=dict)

    async def mark(self) -> None:
        """Count from here."""
        async with self._consumer() as consumer:
            self.start = await self._ends(consumer)

    async def numbers(self, load: Load) -> Counter[int]:
        """The numbers of a load's bodies since :meth:`mark`, with how often each is there."""
        found: Counter[int] = Counter()
        number = re.compile(rb'"run":"%b","n":(\d+)' % load.run.encode())
        async with self._consumer() as consumer:
            ends = await self._ends(consumer)
            missing = {tp for tp in ends if self.start.get(tp, 0) < ends[tp]}
            consumer.assign(list(ends))
            for tp in ends:
                consumer.seek(tp, self.start.get(tp, 0))
            async with asyncio.timeout(60):
                while missing:
                    for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                        found.update(
                            int(match[1]) for record in records if (match := number.search(record.value or b""))
                        )
                        if records and records[-1].offset + 1 >= ends[tp]:
                            missing.discard(tp)
        return found

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)

    async def _ends(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        await consumer._client.force_metadata_update()
        partitions = await consumer._client._wait_on_metadata(self.name)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(
            [TopicPartition(self.name, index) for index in partitions]
        )
        return ends
