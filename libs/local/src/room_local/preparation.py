"""What must be there before the services: the schema and the topics."""

from __future__ import annotations

import asyncio

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from room_common.contracts.topics import TOPICS
from room_common.errors import DependencyUnavailable
from room_common.postgres.migrate import migrate

_TIMEOUT_SECONDS = 30.0


def migrate_schema(dsn: str) -> None:
    """Bring the database to the current schema."""
    migrate(dsn)


def create_topics(bootstrap: str) -> None:
    """Make the topics of the registry that are missing. Raises :class:`DependencyUnavailable`."""
    asyncio.run(asyncio.wait_for(_create(bootstrap), _TIMEOUT_SECONDS))


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=10_000)
    try:
        await admin.start()
        existing = set(await admin.list_topics())
        missing = [NewTopic(one.name, one.partitions, 1, topic_configs=one.config) for one in TOPICS]
        missing = [one for one in missing if one.name not in existing]
        if missing:
            await admin.create_topics(missing, timeout_ms=20_000)
    except KafkaError as error:
        raise DependencyUnavailable("kafka", type(error).__name__) from None
    finally:
        await admin.close()
