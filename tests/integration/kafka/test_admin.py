from __future__ import annotations

import dataclasses
import secrets

import pytest

from room_common.contracts.topics import TOPICS, Topic
from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.kafka.admin import Outcome, create_topics, describe_topics
from room_common.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration


def renamed() -> list[Topic]:
    """The registry under names of this test, so that other tests may use the real ones."""
    prefix = f"test.{secrets.token_hex(4)}"
    return [dataclasses.replace(topic, name=f"{prefix}.{topic.name}") for topic in TOPICS]


async def test_the_registry_is_made_once(settings: KafkaSettings) -> None:
    topics = renamed()
    assert set((await create_topics(settings, topics)).values()) == {Outcome.CREATED}
    assert set((await create_topics(settings, topics)).values()) == {Outcome.EXISTS}
    states = await describe_topics(settings)
    assert {topic.name: topic.partitions for topic in topics} == {
        topic.name: states[topic.name].partitions for topic in topics
    }


async def test_partitions_are_never_altered(settings: KafkaSettings) -> None:
    (topic, *_) = renamed()
    await create_topics(settings, [topic])
    more = dataclasses.replace(topic, partitions=topic.partitions + 1)
    assert await create_topics(settings, [more]) == {topic.name: Outcome.DIFFERS}
    assert (await describe_topics(settings))[topic.name].partitions == topic.partitions


@pytest.mark.apache
async def test_more_copies_than_brokers_are_refused_by_name(settings: KafkaSettings) -> None:
    many = settings.model_copy(update={"replication_factor": 32})
    with pytest.raises(ConfigurationError, match="ROOM_KAFKA__REPLICATION_FACTOR"):
        await create_topics(many, renamed()[:1])


async def test_a_broker_that_is_away_is_a_missing_dependency(settings: KafkaSettings) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9"})
    with pytest.raises(DependencyUnavailable):
        await describe_topics(nowhere)
