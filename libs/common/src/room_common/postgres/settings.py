"""Settings of the connection to PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, Field, SecretStr

from room_common.settings import Section


def _check_dsn(dsn: SecretStr) -> SecretStr:
    try:
        conninfo_to_dict(dsn.get_secret_value())
    except psycopg.Error:
        raise ValueError(
            "is not a connection string of libpq; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    return dsn


class DatabaseSettings(Section):
    """Where PostgreSQL is, and how long to wait for it."""

    dsn: Annotated[SecretStr, AfterValidator(_check_dsn)] = Field(
        description="Connection URI or keywords of libpq, e.g. `postgresql://room:...@host/room?sslmode=verify-full`."
    )
    pool_min: int = Field(1, ge=0, le=100, description="Connections kept open while idle.")
    pool_max: int = Field(8, ge=1, le=200, description="Most connections of one process.")
    connect_timeout: float = Field(
        5.0, gt=0, le=60, description="Seconds to wait for a connection, new or from the pool."
    )
    statement_timeout: float = Field(15.0, gt=0, le=600, description="Seconds after which the server ends a statement.")
    lock_timeout: float = Field(5.0, gt=0, le=600, description="Seconds to wait for a lock inside a statement.")
    transaction_timeout: float = Field(
        30.0, gt=0, le=3600, description="Seconds after which a transaction is cut off, even if the server hangs."
    )
    idle_in_transaction_timeout: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds after which the server ends a session that idles inside a transaction.",
    )
    pooler: bool = Field(
        False, description="A transaction pooler (PgBouncer) is in between: no prepared statements, no session options."
    )
