"""A webhook port for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from room_ingest.intake import Intake
from room_ingest.metrics import IngestMetrics
from room_ingest.overflow import Overflow
from room_ingest.server import Server
from room_ingest.settings import HttpSettings, OverflowSettings
from room_testing.webhook_port import KEYS, Client, MemorySink, OpenPort, Port


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that ingest runs on: transports differ in when they flush, close and notice an end."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def open_port() -> AsyncIterator[OpenPort]:
    """``await open_port(headers_seconds=0.3, ...)`` starts a port with those settings; with ``overflow=connection``
    it has an overflow table."""
    servers: list[Server] = []
    clients: list[Client] = []

    async def make(**settings: Any) -> Port:
        connection = settings.pop("overflow", None)
        chosen = HttpSettings(host="127.0.0.1", port=0, drain_seconds=settings.pop("drain_seconds", 0.2), **settings)
        registry = CollectorRegistry()
        metrics = IngestMetrics(registry)
        webhooks, replies = MemorySink(), MemorySink()
        loop = asyncio.get_running_loop()
        overflow = None if connection is None else Overflow(connection, OverflowSettings(), metrics)
        if overflow is not None:
            await overflow.start()
        server = Server(chosen, Intake(chosen, KEYS, webhooks, replies, metrics, loop, overflow), metrics)
        await server.start()
        servers.append(server)

        async def connect() -> Client:
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            clients.append(client)
            return client

        return Port(server, webhooks, replies, metrics, registry, connect)

    yield make
    for client in clients:
        await client.close()
    for server in servers:
        if not server.draining:
            await server.stop()


@pytest.fixture
async def port(open_port: OpenPort) -> Port:
    """A port with default settings."""
    return await open_port()
