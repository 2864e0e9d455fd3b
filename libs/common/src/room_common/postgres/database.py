"""The connection pool, as a part of a service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from prometheus_client import CollectorRegistry
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from room_common.advice import explain
from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.postgres.failures import DEPENDENCY, refusal, unavailable
from room_common.postgres.settings import DatabaseSettings
from room_common.service.parts import Part
from room_common.telemetry.metrics import DEPENDENCY_UP, gauge

Connection = psycopg.AsyncConnection[DictRow]
"""What every function in ``room_common.postgres`` takes first: rows are dicts, a transaction is open."""

_log = logging.getLogger(__name__)
_PROBE_SECONDS = 2.0
_PROBE_PAUSE = 0.2
_PROBE_STOP = 1.0
_ROLLBACK_SECONDS = 5.0
_DISTURBING = frozenset({"connect", "shutdown"})


def connection_string(
    settings: DatabaseSettings, application_name: str = "room", *, variable: str = "ROOM_DATABASE__DSN"
) -> str:
    """The libpq connection string with our timeouts. Raises ConfigurationError without repeating the DSN."""
    try:
        given = conninfo_to_dict(settings.dsn.get_secret_value())
    except psycopg.Error:
        raise ConfigurationError(f"{variable} is not a connection string that libpq understands") from None
    options: dict[str, Any] = {
        "application_name": application_name,
        "connect_timeout": max(2, round(settings.connect_timeout)),
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": round(settings.transaction_timeout * 1000),
    }
    if not settings.pooler:
        session = [f"-c {name}={value}" for name, value in _session_timeouts(settings).items()]
        options["options"] = " ".join([*session, str(given.pop("options", None) or "")]).strip()
    return make_conninfo(**{**options, **given})


def _session_timeouts(settings: DatabaseSettings) -> dict[str, str]:
    return {
        "statement_timeout": str(round(settings.statement_timeout * 1000)),
        "lock_timeout": str(round(settings.lock_timeout * 1000)),
        "idle_in_transaction_session_timeout": str(round(settings.idle_in_transaction_timeout * 1000)),
    }


class Database(Part):
    """PostgreSQL for one process.

    ``async with database.transaction() as conn`` opens a transaction, commits at the normal end and rolls back on an
    error. What only waiting can heal is raised as ``DependencyUnavailable("postgresql", kind)``; errors of a
    statement itself (constraints, syntax) stay psycopg's. Note that a commit whose answer was lost looks like one
    that failed.
    """

    name = "postgresql"

    def __init__(
        self,
        settings: DatabaseSettings,
        *,
        application_name: str = "room",
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._settings = settings
        self._conninfo = connection_string(settings, application_name)
        self._kwargs: dict[str, Any] = {
            "row_factory": dict_row,
            "prepare_threshold": None if settings.pooler else 5,
        }
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._reason: str | None = "not connected"
        self._probe: asyncio.Task[None] | None = None
        self._disturbed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._up = None if registry is None else gauge(registry, DEPENDENCY_UP).labels(dependency=DEPENDENCY)
        if self._up is not None:
            self._up.set(0)

    async def start(self) -> None:
        await self._connect_once()
        if self._pool is None:
            pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                self._conninfo,
                connection_class=psycopg.AsyncConnection[DictRow],
                kwargs=self._kwargs,
                min_size=min(self._settings.pool_min, self._settings.pool_max),
                max_size=self._settings.pool_max,
                timeout=self._settings.connect_timeout,
                reconnect_timeout=self._settings.connect_timeout,
                max_lifetime=1800,
                open=False,
                name=self.name,
            )
            await pool.open(wait=False)
            self._pool = pool
        self._report(None)
        if self._probe is None:
            self._probe = asyncio.create_task(self._watch(), name="postgresql-probe")

    async def stop(self) -> None:
        # Asked first and cancelled second: the pool's own methods swallow a cancellation now and then.
        if self._probe is not None:
            self._stopping.set()
            self._disturbed.set()
            _, pending = await asyncio.wait({self._probe}, timeout=_PROBE_STOP)
            for task in pending:
                task.cancel()
        if self._pool is not None:
            await self._pool.close(timeout=5.0)

    def ready(self) -> str | None:
        return self._reason

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[Connection]:
        """One transaction on one connection of the pool, cut off after ``timeout`` (default: the setting) seconds.

        Where the server hangs, the driver first tries to cancel the statement: that takes 5 to 10 seconds more.
        """
        if self._pool is None:
            raise DependencyUnavailable(DEPENDENCY, "connect")
        limit = self._settings.transaction_timeout if timeout is None else timeout
        scope = asyncio.timeout(limit)
        try:
            conn = await self._pool.getconn()
            try:
                async with scope:
                    await self._begin(conn)
                    yield conn
                    await conn.commit()
            except BaseException:
                await _roll_back(conn)
                raise
            finally:
                await self._pool.putconn(conn)
        except (psycopg.Error, TimeoutError) as error:
            if isinstance(error, TimeoutError) and not scope.expired():
                raise
            mapped = unavailable(error)
            if mapped is None:
                raise
            if mapped.kind in _DISTURBING:
                self._disturbed.set()
            raise mapped from error

    connection = transaction
    """The same: a connection is only ever used inside a transaction."""

    async def _begin(self, conn: Connection) -> None:
        if not self._settings.pooler:
            return
        for name, value in _session_timeouts(self._settings).items():
            await conn.execute("select set_config(%s, %s, true)", (name, value))

    async def _connect_once(self) -> None:
        """Connect outside the pool, whose own errors say nothing but that there was no connection in time."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout + 1):
                conn = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
                try:
                    await conn.execute("select 1")
                finally:
                    await conn.close()
        except (psycopg.Error, OSError) as error:
            refused = refusal(error, self._conninfo)
            self._report(explain(refused))
            raise refused from error

    async def _watch(self) -> None:
        """Keep ``ready`` true to the facts, and throw dead connections out of the pool soon after they die."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._disturbed.wait()
            if self._stopping.is_set():
                return
            disturbed = self._disturbed.is_set()
            self._disturbed.clear()
            try:
                await self._ask(disturbed)
            except DependencyUnavailable as error:
                self._report(explain(error))
            except Exception:
                _log.exception("the probe of PostgreSQL failed")
                self._report(f"{DEPENDENCY}: probe_failed")
            await asyncio.sleep(_PROBE_PAUSE)

    async def _ask(self, disturbed: bool) -> None:
        assert self._pool is not None
        try:
            async with asyncio.timeout(self._settings.connect_timeout + 1):
                if disturbed:
                    await self._pool.drain()
                conn = await self._pool.getconn()
                try:
                    await conn.execute("select 1")
                    await conn.rollback()
                finally:
                    if conn.info.transaction_status is not TransactionStatus.IDLE:
                        await conn.close()
                    await self._pool.putconn(conn)
        except PoolTimeout:
            if self._reason is not None or not self._busy():
                await self._connect_once()
        except (psycopg.Error, OSError) as error:
            raise unavailable(error) or refusal(error, self._conninfo) from error
        self._report(None)

    def _busy(self) -> bool:
        """All connections exist and are in use: a sign of load, not of a database that is away."""
        assert self._pool is not None
        stats = self._pool.get_stats()
        return stats.get("pool_size", 0) >= self._settings.pool_max and stats.get("pool_available", 0) == 0

    def _report(self, reason: str | None) -> None:
        self._reason = reason
        if self._up is not None:
            self._up.set(0 if reason else 1)


async def _roll_back(conn: Connection) -> None:
    """End the transaction within a bounded time; a connection that can't is closed and so leaves the pool."""
    try:
        async with asyncio.timeout(_ROLLBACK_SECONDS):
            await conn.rollback()
    except (psycopg.Error, TimeoutError):
        await conn.close()
