"""What must be there before the services: the schema and the topics."""

from __future__ import annotations

import asyncio
from typing import Final

import psycopg
from psycopg import sql

from room_common.contracts.topics import TOPICS
from room_common.kafka import admin
from room_common.kafka.settings import KafkaSettings
from room_common.postgres.migrate import migrate

OVERFLOW_USER: Final = "room_ingest"
"""The role that ingest logs in with: a member of ``room_ingest_overflow`` and of nothing else."""


def migrate_schema(dsn: str) -> None:
    """Bring the database to the current schema, and let ingest log in."""
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
        if connection.execute("select 1 from pg_roles where rolname = %s", (OVERFLOW_USER,)).fetchone() is None:
            role = sql.Identifier(OVERFLOW_USER)
            connection.execute(sql.SQL("create role {} login in role room_ingest_overflow").format(role))


def create_topics(bootstrap: str) -> None:
    """Make the topics of the registry that are missing, on one broker. Raises :class:`DependencyUnavailable`."""
    settings = KafkaSettings(bootstrap_servers=bootstrap, replication_factor=1, min_insync_replicas=1)
    asyncio.run(admin.create_topics(settings, TOPICS))
