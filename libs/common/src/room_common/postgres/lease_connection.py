"""A connection of its own for renewing leases, synchronous, for a thread that nothing else can delay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from room_common.errors import DependencyUnavailable
from room_common.postgres import leases
from room_common.postgres.database import connection_string
from room_common.postgres.failures import DEPENDENCY, unavailable
from room_common.postgres.leases import Lease, Renewal
from room_common.postgres.settings import DatabaseSettings

_STATEMENT_MS: Final = 5_000


class LeaseConnection:
    """Connects when needed, and anew after an error. Not for use by several threads."""

    def __init__(self, settings: DatabaseSettings, application_name: str) -> None:
        self._conninfo = connection_string(settings, application_name)
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    def renew(self, owner: str, held: Sequence[Lease], seconds: float) -> Renewal:
        """As :func:`room_common.postgres.leases.renew`. Raises ``DependencyUnavailable`` for any failure: a lease is
        renewed or it is not."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._conninfo, autocommit=True, row_factory=dict_row, prepare_threshold=None
                )
            with self._connection.transaction():
                self._connection.execute("select set_config('statement_timeout', %s, true)", (str(_STATEMENT_MS),))
                return leases.renew(self._connection, owner, held, seconds)
        except (psycopg.Error, OSError) as error:
            self.close()
            raise unavailable(error) or DependencyUnavailable(DEPENDENCY, "unexpected") from error

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
