"""From a socket to the outcome: the webhook port, its records, and the matcher's rules on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from room_ingest.intake import Intake
from room_ingest.metrics import IngestMetrics
from room_ingest.server import Server
from room_ingest.settings import HttpSettings
from room_testing.judged_port import JudgedPort
from room_testing.webhook_port import KEYS, MemorySink


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that ingest runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def port() -> AsyncIterator[JudgedPort]:
    """A port with default settings and whatever it receives judged."""
    settings = HttpSettings(host="127.0.0.1", port=0, drain_seconds=0.2)
    metrics = IngestMetrics(CollectorRegistry())
    webhooks = MemorySink()
    server = Server(
        settings, Intake(settings, KEYS, webhooks, MemorySink(), metrics, asyncio.get_running_loop()), metrics
    )
    await server.start()
    try:
        yield JudgedPort(server.port, webhooks)
    finally:
        await server.stop()
