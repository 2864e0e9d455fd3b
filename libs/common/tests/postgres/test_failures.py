from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from room_common.advice import explain
from room_common.postgres.failures import address, refusal, unavailable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PoolTimeout(), "pool_timeout"),
        (PoolClosed(), "closed"),
        (errors.SerializationFailure(), "retry"),
        (errors.DeadlockDetected(), "retry"),
        (errors.QueryCanceled(), "statement_timeout"),
        (errors.LockNotAvailable(), "lock_timeout"),
        (errors.AdminShutdown(), "shutdown"),
        (errors.CannotConnectNow(), "shutdown"),
        (errors.ReadOnlySqlTransaction(), "read_only"),
        (errors.InvalidPassword(), "authentication"),
        (errors.DiskFull(), "resources"),
        (psycopg.OperationalError("server closed the connection"), "connect"),
        (psycopg.InterfaceError("the connection is closed"), "connect"),
        (TimeoutError(), "timeout"),
    ],
)
def test_what_waiting_heals(error: BaseException, kind: str) -> None:
    mapped = unavailable(error)
    assert mapped is not None
    assert (mapped.dependency, mapped.kind) == ("postgresql", kind)


@pytest.mark.parametrize(
    "error",
    [
        errors.UniqueViolation(),
        errors.SyntaxError(),
        errors.DataError(),
        errors.ProgramLimitExceeded(),
        ValueError("x"),
    ],
)
def test_what_waiting_does_not_heal(error: BaseException) -> None:
    assert unavailable(error) is None


SECRET = "hunter2"
CONNINFO = f"postgresql://room:{SECRET}@db.example:5433/orders"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('connection failed: connection to server at "10.0.0.1", port 5433 failed: Connection refused', "refused"),
        ('connection to server on socket "/x/.s.PGSQL.5432" failed: No such file or directory', "refused"),
        ('FATAL:  password authentication failed for user "room"', "authentication"),
        ("fe_sendauth: no password supplied", "authentication"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "room"', "authentication"),
        ('FATAL:  role "room" does not exist', "authentication"),
        ('FATAL:  database "orders" does not exist', "no_such_database"),
        ("failed to resolve host 'db.example': [Errno -2] Name or service not known", "unknown_host"),
        ("server does not support SSL, but SSL was required", "tls"),
        ("connection timeout expired", "timeout"),
        ("FATAL:  the database system is starting up", "shutdown"),
        ("something else", "connect"),
    ],
)
def test_a_refused_connection_says_how_and_where_without_the_password(words: str, kind: str) -> None:
    error = refusal(psycopg.OperationalError(f"{words} {SECRET}"), CONNINFO)
    assert (error.dependency, error.kind) == ("postgresql", kind)
    told = explain(error)
    assert "db.example:5433, database orders" in told
    assert "ROOM_DATABASE__DSN" in told or kind in ("timeout", "shutdown", "connect")
    assert SECRET not in told


@given(st.text(max_size=60))
def test_an_address_is_told_whatever_was_given(conninfo: str) -> None:
    assert address(conninfo)
