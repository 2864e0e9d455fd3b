"""What a stack prepares for its services."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from room_local.preparation import OVERFLOW_USER, migrate_schema

pytestmark = pytest.mark.integration


def test_ingest_may_log_in_and_see_the_overflow_table_only(empty_database_dsn: str) -> None:
    for _ in range(2):
        migrate_schema(empty_database_dsn)
    with psycopg.connect(make_conninfo(empty_database_dsn, user=OVERFLOW_USER), autocommit=True) as connection:
        assert connection.execute("select count(*) from ingest_overflow").fetchone() == (0,)
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("select * from instances")
