"""What must be there before the services: the schema and the topics."""

from __future__ import annotations

import asyncio

from room_common.contracts.topics import TOPICS
from room_common.kafka import admin
from room_common.kafka.settings import KafkaSettings
from room_common.postgres.migrate import migrate


def migrate_schema(dsn: str) -> None:
    """Bring the database to the current schema."""
    migrate(dsn)


def create_topics(bootstrap: str) -> None:
    """Make the topics of the registry that are missing, on one broker. Raises :class:`DependencyUnavailable`."""
    settings = KafkaSettings(bootstrap_servers=bootstrap, replication_factor=1, min_insync_replicas=1)
    asyncio.run(admin.create_topics(settings, TOPICS))
