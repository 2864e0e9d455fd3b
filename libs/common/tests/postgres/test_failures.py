from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from room_common.postgres.failures import unavailable


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
