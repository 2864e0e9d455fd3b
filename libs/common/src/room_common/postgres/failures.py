"""Which errors of PostgreSQL mean "wait and try again"."""

from __future__ import annotations

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from room_common.errors import DependencyUnavailable

DEPENDENCY = "postgresql"

_KINDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((PoolTimeout, TooManyRequests), "pool_timeout"),
    ((PoolClosed,), "closed"),
    ((errors.SerializationFailure, errors.DeadlockDetected), "retry"),
    ((errors.QueryCanceled,), "statement_timeout"),
    ((errors.LockNotAvailable,), "lock_timeout"),
    ((errors.ReadOnlySqlTransaction,), "read_only"),
    ((errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow), "shutdown"),
    ((errors.InvalidPassword, errors.InvalidAuthorizationSpecification), "authentication"),
    ((errors.InvalidCatalogName,), "no_such_database"),
    ((errors.TooManyConnections,), "too_many_connections"),
    ((errors.InsufficientPrivilege,), "privilege"),
    ((errors.ConnectionTimeout, TimeoutError), "timeout"),
    ((errors.InsufficientResources, errors.DiskFull, errors.OutOfMemory), "resources"),
)


def unavailable(error: BaseException) -> DependencyUnavailable | None:
    """Map ``error`` to the ``DependencyUnavailable`` it stands for, or None where the statement itself is at fault.

    A limit that the data hits (class 54, an index entry too large for instance) is an OperationalError to the driver,
    but repeating won't help: it is not mapped.
    """
    kind = next((kind for types, kind in _KINDS if isinstance(error, types)), None)
    if kind is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        sqlstate = getattr(error, "sqlstate", None) or ""
        kind = None if sqlstate.startswith("54") else "connect"
    return None if kind is None else DependencyUnavailable(DEPENDENCY, kind)
