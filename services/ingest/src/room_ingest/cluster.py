"""What rounds need of aiokafka's client: metadata, a producer id, connections, and a new client when all else fails.

Private parts of aiokafka in use, here only: ``AIOKafkaClient._get_conn`` and a connection's ``send``, ``connected`` and
``close``. The integration tests of this package are what notices a change of theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol, cast

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import CloseReason
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.structs import TopicPartition

from room_common.kafka.security import client_options
from room_common.kafka.settings import KafkaSettings
from room_ingest.produce import ProduceRequest, Result

TRANSIENT: Final = (kafka.KafkaError, OSError, TimeoutError)
"""What a call to Kafka raises when it may go better next time."""

_TRANSACTION_MS: Final = 60_000
_CLOSE_SECONDS: Final = 2.0


class Link(Protocol):
    """An open connection to one broker."""

    def send(self, request: ProduceRequest) -> Awaitable[list[Result]]:
        """Write the request now; await the answer. Raises one of :data:`TRANSIENT`."""

    def give_up(self) -> None:
        """Close: its answers can't be trusted to come."""


class Cluster(Protocol):
    """The port of :class:`~room_ingest.rounds.Rounds` to Kafka."""

    async def refresh(self, topics: Sequence[str]) -> None:
        """Connect where needed and read the metadata. Raises one of :data:`TRANSIENT`."""

    async def identify(self) -> tuple[int, int]:
        """A fresh producer id and its epoch. Raises one of :data:`TRANSIENT`."""

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has, 0 when it is not there."""

    def denied(self, topic: str) -> bool:
        """Whether the broker hides the topic from us."""

    def leader(self, topic: str, partition: int) -> int | None:
        """The node that leads a partition, None while none does."""

    async def link(self, node: int) -> Link:
        """A connection to a node. Raises one of :data:`TRANSIENT`."""

    async def drop(self) -> None:
        """Close everything; the next refresh starts from the bootstrap servers. Bounded."""


class _AiokafkaLink:
    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def send(self, request: ProduceRequest) -> Awaitable[list[Result]]:
        return cast("Awaitable[list[Result]]", self._connection.send(request))

    def give_up(self) -> None:
        self._connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    @property
    def open(self) -> bool:
        return bool(self._connection.connected())


class AiokafkaCluster:
    """The cluster through aiokafka's client."""

    def __init__(self, settings: KafkaSettings, request_seconds: float) -> None:
        self._options = client_options(settings) | {"request_timeout_ms": int(request_seconds * 1000)}
        self._seconds = request_seconds
        self._client: AIOKafkaClient | None = None
        self._links: dict[int, _AiokafkaLink] = {}

    async def refresh(self, topics: Sequence[str]) -> None:
        client = self._client
        if client is None:
            client = AIOKafkaClient(client_id="room-ingest", **self._options)
            try:
                await client.bootstrap()
            except BaseException:
                await _close(client)
                raise
            self._client = client
        client.set_topics(list(topics))
        if not await client.force_metadata_update():
            raise kafka.KafkaConnectionError("no broker gave its metadata")

    async def identify(self) -> tuple[int, int]:
        client = self._connected()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_MS)
        answer = await client.send(client.get_random_node(), request)
        if answer.error_code:
            raise kafka.for_code(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def partitions(self, topic: str) -> int:
        known = self._connected().cluster.partitions_for_topic(topic)
        return max(known) + 1 if known else 0

    def denied(self, topic: str) -> bool:
        return topic in self._connected().cluster.unauthorized_topics

    def leader(self, topic: str, partition: int) -> int | None:
        leader = self._connected().cluster.leader_for_partition(TopicPartition(topic, partition))
        return None if leader in (None, -1) else int(leader)

    async def link(self, node: int) -> Link:
        known = self._links.get(node)
        if known is not None and known.open:
            return known
        async with asyncio.timeout(self._seconds):
            connection = await self._connected()._get_conn(node)
        if connection is None:
            raise kafka.NodeNotReadyError
        link = self._links[node] = _AiokafkaLink(connection)
        return link

    async def drop(self) -> None:
        self._links.clear()
        client, self._client = self._client, None
        if client is not None:
            await _close(client)

    def _connected(self) -> Any:
        if self._client is None:
            raise kafka.NodeNotReadyError
        return self._client


async def _close(client: AIOKafkaClient) -> None:
    """Close, whatever state the client is in and however long its connections would take."""
    task = asyncio.ensure_future(client.close())
    await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
    task.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await task
