"""A connection of ingest to the overflow table: made when it is needed, closed when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row
from pydantic import SecretStr

from room_common.errors import DependencyUnavailable
from room_common.faults import crash_point
from room_common.postgres import overflow
from room_common.postgres.database import Connection, connection_string
from room_common.postgres.failures import DEPENDENCY, unavailable
from room_common.postgres.overflow import BEGINNING, OverflowRecord, OverflowTotal
from room_common.postgres.settings import DatabaseSettings

_SESSION: Final = """
    select set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),
           set_config('idle_in_transaction_session_timeout', %s, true),
           -- what is answered 200 must survive a crash, whatever the server's default
           set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
                                            else current_setting('synchronous_commit') end, true)
"""


class OverflowFull(Exception):
    """The table has no room for what was to be added."""


class OverflowConnection:
    """One connection, for one task at a time. Every failure is ``DependencyUnavailable`` and ends the connection; every
    call is bounded by ``seconds``, beyond which a server that hangs may cost the driver's 5 to 10 for its cancelling.
    """

    def __init__(self, dsn: SecretStr, application_name: str, *, connect_seconds: float, seconds: float) -> None:
        """Raises ConfigurationError. Works through a transaction pooler too."""
        settings = DatabaseSettings(dsn=dsn, pooler=True, connect_timeout=connect_seconds)
        self._conninfo = connection_string(settings, application_name, variable="ROOM_OVERFLOW__DSN")
        self._connect_seconds = connect_seconds
        self._seconds = seconds
        self._connection: psycopg.AsyncConnection[DictRow] | None = None

    async def add(self, records: Sequence[OverflowRecord], *, max_rows: int, max_bytes: int) -> None:
        """Commit all records in one transaction, or raise :class:`OverflowFull`."""
        async with self._transaction(self._seconds) as conn:
            if not await overflow.add(conn, records, max_rows=max_rows, max_bytes=max_bytes):
                raise OverflowFull
            crash_point("ingest.overflow.before_commit")

    async def total(self) -> OverflowTotal:
        """How much is in the table."""
        async with self._transaction(self._seconds) as conn:
            return await overflow.total_of(conn)

    @asynccontextmanager
    async def claim(self, *, rows: int, bytes: int, seconds: float, after: UUID = BEGINNING) -> AsyncIterator[Claim]:
        """The oldest records behind ``after`` that nobody else holds; what of them is done when the block ends goes
        from the table."""
        async with self._transaction(seconds) as conn:
            claim = Claim(await overflow.claim(conn, after=after, rows=rows, bytes=bytes))
            yield claim
            if claim.done:
                crash_point("ingest.overflow.before_removal")
                await overflow.remove(conn, claim.done)

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @asynccontextmanager
    async def _transaction(self, seconds: float) -> AsyncIterator[Connection]:
        try:
            conn = await self._connected()
            async with asyncio.timeout(seconds):
                limit = str(round(seconds * 1000))
                await conn.execute(_SESSION, (limit, limit, limit))
                yield conn
                await conn.commit()
        except OverflowFull:
            await self.close()
            raise
        except (psycopg.Error, OSError, TimeoutError) as error:
            await self.close()
            raise unavailable(error) or DependencyUnavailable(DEPENDENCY, "unexpected") from error
        except BaseException:
            await self.close()
            raise

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            async with asyncio.timeout(self._connect_seconds):
                self._connection = await psycopg.AsyncConnection.connect(
                    self._conninfo, row_factory=dict_row, prepare_threshold=None
                )
        return self._connection


class Claim:
    """Records that are locked, and which of them are done."""

    def __init__(self, records: Sequence[OverflowRecord]) -> None:
        self.records = records
        self.done: list[UUID] = []
