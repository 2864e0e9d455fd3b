"""Which errors of PostgreSQL mean "wait and try again"."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
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


_REFUSALS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("connection refused", "no such file or directory"), "refused"),
    (("could not translate host name", "failed to resolve host", "name or service not known"), "unknown_host"),
    (("password authentication failed", "no password supplied", "authentication failed"), "authentication"),
    (("pg_hba.conf", "is not permitted to log in"), "authentication"),
    (("ssl", "certificate"), "tls"),
    (("timeout expired", "timed out"), "timeout"),
    (("too many clients", "remaining connection slots"), "too_many_connections"),
    (("starting up", "shutting down", "not yet accepting connections"), "shutdown"),
    (("permission denied",), "privilege"),
)
_MISSING = re.compile(r"(database|role) \".*\" does not exist", re.DOTALL)


def refusal(error: BaseException, conninfo: str) -> DependencyUnavailable:
    """Why there was no connection at all: libpq gives no code for it, only words. Host, port and database are kept."""
    mapped = unavailable(error)
    kind = mapped.kind if mapped is not None else "connect"
    if kind == "connect":
        words = str(error).lower()
        kind = next((name for known, name in _REFUSALS if any(word in words for word in known)), kind)
        if missing := _MISSING.search(words):
            kind = "no_such_database" if missing[1] == "database" else "authentication"
    return DependencyUnavailable(DEPENDENCY, kind, at=address(conninfo))


def address(conninfo: str) -> str:
    """Host, port and database of a connection string, as an operator would say them."""
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.Error:
        return "an unreadable address"
    host = str(given.get("host") or given.get("hostaddr") or "the local socket")
    return f"{host}:{given.get('port') or 5432}, database {given.get('dbname') or given.get('user') or 'by default'}"


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
