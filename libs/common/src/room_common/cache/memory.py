"""What classification remembers for a day, so that the same question is not paid twice.

The memory may forget anything at any time (design promise P11): every trouble with Redis is a miss, never an error, and
costs at most ``timeout_seconds``; after a few in a row nobody waits any more until a probe in the background answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from room_common.cache.settings import RedisSettings
from room_common.coalescing import Coalescer
from room_common.service.parts import Part
from room_common.telemetry.metrics import DEPENDENCY_UP, Metric, counter, define, gauge

KEPT_SECONDS = 24 * 3600
LONGEST_ANSWER = 1_000
"""Characters of an answer that are kept; a verdict is in its first words."""
FAILURES_TO_OPEN = 3
PROBE_SECONDS = 2.0
CONNECTIONS = 8

LOOKUPS = define(
    Metric("room_verdict_memory_lookups_total", "counter", "Look-ups of remembered verdicts.", ("result",))
)

_TROUBLE = (RedisError, OSError, TimeoutError)
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class VerdictMemory(Protocol):
    """Answers of the fast model by key.

    A key is the hex SHA-256 of (prompt version, model, rendered prompt without nonce): equal keys, equal questions.
    """

    async def get(self, key: str) -> str | None:
        """The answer put under ``key`` in the last 24 h, or None. Never raises, never waits long."""
        ...

    async def put(self, key: str, answer: str) -> None:
        """Remember the first 1,000 characters of ``answer`` for 24 h, if that is possible now. Never raises."""
        ...


class RedisVerdictMemory(Part):
    """:class:`VerdictMemory` in Redis. Without a URL it remembers nothing. Always ready: nobody has to wait for it."""

    name = "verdict memory"

    def __init__(
        self, settings: RedisSettings, registry: CollectorRegistry, *, probe_seconds: float = PROBE_SECONDS
    ) -> None:
        self._timeout = settings.timeout_seconds
        self._probe_seconds = probe_seconds
        self._failures = 0
        self._probe: asyncio.Task[None] | None = None
        self._redis: Redis | None = None
        if settings.url is not None:
            # The client's timeouts are only the backstop: connecting with TLS may take longer than an answer may.
            pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
                settings.url.get_secret_value(),
                max_connections=CONNECTIONS,
                timeout=PROBE_SECONDS,
                socket_timeout=PROBE_SECONDS,
                socket_connect_timeout=PROBE_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            self._redis = Redis.from_pool(pool)
        self._gets: Coalescer[str, tuple[bool, str | None]] = Coalescer(self._get_many)
        self._puts: Coalescer[tuple[str, str], bool] = Coalescer(self._put_many)
        self._lookups = counter(registry, LOOKUPS)
        for result in ("hit", "miss", "unavailable"):
            self._lookups.labels(result)
        self._up = gauge(registry, DEPENDENCY_UP).labels("redis") if self._redis is not None else None

    async def start(self) -> None:
        """Connect, so that the first call need not. Redis being away is no error."""
        if self._redis is None:
            return
        self._report(1)
        if not await self._answers(self._redis):
            self._open()

    async def stop(self) -> None:
        """Close the connections; takes at most a few seconds."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        if self._redis is not None:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._redis.aclose()
            except _TROUBLE:
                pass  # nothing is lost with the connection

    async def get(self, key: str) -> str | None:
        """See :class:`VerdictMemory`."""
        answered, answer = (False, None) if self._away else await self._gets.ask(key)
        result = "hit" if answer is not None else ("miss" if answered else "unavailable")
        self._lookups.labels(result).inc()
        return answer

    async def put(self, key: str, answer: str) -> None:
        """See :class:`VerdictMemory`."""
        if not self._away:
            await self._puts.ask((key, answer[:LONGEST_ANSWER]))

    async def _get_many(self, keys: Sequence[str]) -> Mapping[str, tuple[bool, str | None]]:
        answered, values = await self._call(lambda redis: redis.mget([_name(key) for key in keys]))
        if not answered or values is None:
            return dict.fromkeys(keys, (False, None))
        return {key: (True, _text(value)) for key, value in zip(keys, values, strict=True)}

    async def _put_many(self, answers: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], bool]:
        async def write(redis: Redis) -> None:
            async with redis.pipeline(transaction=False) as pipeline:
                for key, answer in answers:
                    pipeline.set(_name(key), answer.encode("utf-8", "replace"), ex=KEPT_SECONDS)
                await pipeline.execute()

        answered, _ = await self._call(write)
        return dict.fromkeys(answers, answered)

    @property
    def _away(self) -> bool:
        return self._redis is None or self._probe is not None

    async def _call(self, command: Callable[[Redis], Awaitable[T]]) -> tuple[bool, T | None]:
        """Whether Redis answered, and what."""
        if self._redis is None or self._probe is not None:
            return False, None
        try:
            async with asyncio.timeout(self._timeout):
                value = await command(self._redis)
        except _TROUBLE as error:
            self._failures += 1
            if self._failures >= FAILURES_TO_OPEN and self._probe is None:
                _log.warning("redis does not answer, verdicts are not remembered", error=type(error).__name__)
                self._open()
            return False, None
        self._failures = 0
        return True, value

    def _report(self, up: int) -> None:
        if self._up is not None:
            self._up.set(up)

    def _open(self) -> None:
        self._report(0)
        self._probe = asyncio.create_task(self._until_it_answers(), name="probe redis")

    async def _until_it_answers(self) -> None:
        assert self._redis is not None
        while True:
            await asyncio.sleep(self._probe_seconds)
            if await self._answers(self._redis):
                break
        self._failures = 0
        self._probe = None
        self._report(1)
        _log.info("redis answers again")

    @staticmethod
    async def _answers(redis: Redis) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await redis.ping()
        except _TROUBLE:
            return False
        return True


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _name(key: str) -> str:
    return f"room:verdict:{key}"
