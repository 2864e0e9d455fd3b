"""Which connection to a broker is used."""

from __future__ import annotations

from typing import cast

from aiokafka.client import AIOKafkaClient

from room_common.kafka.settings import KafkaSettings
from room_ingest.cluster import AiokafkaCluster


class Connection:
    def __init__(self) -> None:
        self.open = True

    def connected(self) -> bool:
        return self.open


class Client:
    """Gives a new connection each time, and counts them."""

    def __init__(self) -> None:
        self.given: list[Connection] = []

    async def _get_conn(self, node: int) -> Connection:
        self.given.append(Connection())
        return self.given[-1]

    async def close(self) -> None:
        """Leaves the connections as they are."""


async def test_a_connection_is_used_while_it_is_open_and_its_client_is_there() -> None:
    cluster, client = AiokafkaCluster(KafkaSettings(bootstrap_servers="127.0.0.1:1"), 1.0), Client()
    cluster._client = cast(AIOKafkaClient, client)
    first = await cluster.link(1)
    assert await cluster.link(1) is first
    assert await cluster.link(2) is not first
    client.given[0].open = False
    second = await cluster.link(1)
    assert second is not first
    await cluster.drop()
    cluster._client = cast(AIOKafkaClient, client)
    assert await cluster.link(1) is not second
