from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from room_common.errors import ConfigurationError
from room_common.service.operations import Operations
from room_common.settings import OperationsSettings
from room_common.telemetry.metrics import new_registry


@pytest_asyncio.fixture
async def base() -> AsyncIterator[str]:
    settings = OperationsSettings(host="127.0.0.1", port=0)
    operations = Operations(settings, new_registry("test"), dict, dict)
    await operations.start()
    yield f"http://127.0.0.1:{operations.port}"
    await operations.stop()


async def test_metrics_speak_both_formats(base: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        plain = await client.get(f"{base}/metrics")
        openmetrics = await client.get(f"{base}/metrics", headers={"accept": "application/openmetrics-text"})
    assert "room_build_info" in plain.text
    assert plain.headers["content-type"].startswith("text/plain")
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("HEAD", "/readyz", 200),
        ("POST", "/livez", 405),
        ("GET", "/other", 404),
        ("GET", "/", 404),
    ],
)
async def test_only_three_paths_answer(base: str, method: str, path: str, status: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, f"{base}{path}")
    assert answer.status_code == status
    assert "server" not in answer.headers
    assert not (method == "HEAD" and answer.content)


async def test_the_port_is_free_again_after_stop() -> None:
    settings = OperationsSettings(host="127.0.0.1", port=0)
    first = Operations(settings, new_registry("test"), dict, dict)
    await first.start()
    again = Operations(OperationsSettings(host="127.0.0.1", port=first.port), new_registry("test"), dict, dict)
    with pytest.raises(ConfigurationError, match="ROOM_OPERATIONS__PORT"):
        await again.start()
    await asyncio.sleep(0)
    await first.stop()
    await again.start()
    await again.stop()


async def test_stop_without_start_is_harmless() -> None:
    await Operations(OperationsSettings(), new_registry("test"), dict, dict).stop()
