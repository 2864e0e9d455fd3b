"""Topics: made from the registry, compared with it, never altered.

Consumer groups are not read here: lag is told by the consumers themselves, because not every broker's answer about a
foreign group can be decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from room_common.contracts.topics import Topic
from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.kafka.failures import failure_kind
from room_common.kafka.security import client_options
from room_common.kafka.settings import KafkaSettings

_LIMIT: Final = 60.0


class Outcome(StrEnum):
    """What creating a topic came to. ``DIFFERS``: it exists with another number of partitions, which stays."""

    CREATED = "created"
    EXISTS = "exists"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker has it."""

    name: str
    partitions: int
    replication_factor: int


async def describe_topics(settings: KafkaSettings) -> dict[str, TopicState]:
    """All topics of the cluster by name. Raises ``DependencyUnavailable``."""
    async with _admin(settings) as admin:
        return await _states(admin)


async def describe_configs(settings: KafkaSettings, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings of topics by name; none of a broker that does not tell them. Raises ``DependencyUnavailable``."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    async with _admin(settings) as admin:
        try:
            answers = await admin.describe_configs(resources)
        except (kafka.IncompatibleBrokerVersion, kafka.UnsupportedVersionError):
            return {}
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for answer in answers
        for code, _, _, name, entries in answer.resources
        if code == 0
    }


async def create_topics(settings: KafkaSettings, topics: Iterable[Topic]) -> dict[str, Outcome]:
    """Make the topics that are missing, and wait until they are known. Others stay as they are, partitions above all.

    Raises ``DependencyUnavailable``, and ``ConfigurationError`` when the broker refuses what the settings ask for.
    """
    wanted = list(topics)
    async with _admin(settings) as admin:
        existing = await _states(admin)
        missing = [topic for topic in wanted if topic.name not in existing]
        created = await _create(admin, settings, missing) if missing else set()
        while any(topic.name not in existing for topic in wanted):  # brokers hear of new topics a little later
            await asyncio.sleep(0.1)
            existing = await _states(admin)
    return {
        topic.name: Outcome.CREATED if topic.name in created else _compare(topic, existing[topic.name])
        for topic in wanted
    }


def _compare(topic: Topic, state: TopicState) -> Outcome:
    return Outcome.EXISTS if state.partitions == topic.partitions else Outcome.DIFFERS


async def _create(admin: AIOKafkaAdminClient, settings: KafkaSettings, topics: Sequence[Topic]) -> set[str]:
    while admin._client.cluster.controller is None:  # a cluster that is just starting; the client would crash
        await asyncio.sleep(0.1)
        await admin._client.force_metadata_update()
    response = await admin.create_topics(
        [
            NewTopic(
                topic.name,
                topic.partitions,
                settings.replication_factor,
                topic_configs=topic.config | {"min.insync.replicas": str(settings.min_insync_replicas)},
            )
            for topic in topics
        ]
    )
    created = set()
    for name, code, *_ in response.topic_errors:
        error = kafka.for_code(code)
        if error is kafka.NoError:
            created.add(name)
        elif error is kafka.InvalidReplicationFactorError:
            raise ConfigurationError(
                f"ROOM_KAFKA__REPLICATION_FACTOR: the cluster has fewer brokers than {settings.replication_factor}"
            )
        elif error in (kafka.InvalidConfigurationError, kafka.InvalidTopicError, kafka.PolicyViolationError):
            raise ConfigurationError(f"the broker refuses to create {name}: {error.__name__}")
        elif error is not kafka.TopicAlreadyExistsError:
            raise error(name)
    return created


async def _states(admin: AIOKafkaAdminClient) -> dict[str, TopicState]:
    return {
        topic["topic"]: TopicState(
            name=topic["topic"],
            partitions=len(topic["partitions"]),
            replication_factor=min((len(part["replicas"]) for part in topic["partitions"]), default=0),
        )
        for topic in await admin.describe_topics()
        if not topic["error_code"]
    }


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(client_id="room-admin", **client_options(settings))
    try:
        async with asyncio.timeout(_LIMIT):
            await admin.start()
            yield admin
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        raise DependencyUnavailable("kafka", failure_kind(error)) from error
    finally:
        closing = asyncio.ensure_future(admin.close())
        await asyncio.wait({closing}, timeout=5.0)
