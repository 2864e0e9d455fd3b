"""TLS and SASL to the broker: right and wrong log-ins, strange certificates, log-ins that expire."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from room_common.contracts.topics import WEBHOOKS_RAW
from room_testing.ingest_process import MakeIngest
from room_testing.secure_kafka import SecureKafka
from room_testing.webhook_load import Load, Topic

pytestmark = [pytest.mark.integration, pytest.mark.apache]


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker that believes a log-in for three seconds."""
    secure = SecureKafka(tmp_path_factory.mktemp("secure"), reauthenticate_ms=3000)
    secure.kafka.start()
    yield secure
    secure.kafka.stop()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_every_200_is_in_the_topic_however_often_the_log_in_expires(
    secure_kafka: SecureKafka, make_ingest: MakeIngest, tokens: list[str], mechanism: str
) -> None:
    plain = secure_kafka.kafka.bootstrap
    service, port = await make_ingest(plain, True, **secure_kafka.settings, ROOM_KAFKA__SASL_MECHANISM=mechanism)
    topic = Topic(plain, WEBHOOKS_RAW)
    await topic.mark()
    load = Load(port, tokens, senders=8)
    load.start()
    await load.reached(500)
    await asyncio.sleep(7)  # two log-ins are over
    await load.reached(len(load.accepted) + 500)
    await load.stop()
    assert load.cut == load.refused == 0
    assert load.answers == {200: len(load.accepted)}
    numbers = await topic.numbers(load)
    assert numbers.keys() >= load.accepted
    assert all(numbers[number] == 1 for number in load.accepted)
    assert service.lives()


@pytest.mark.parametrize("wrong", ["password", "authority"])
async def test_a_log_in_that_fails_is_named_and_tried_again(
    secure_kafka: SecureKafka, make_ingest: MakeIngest, tmp_path: Path, wrong: str
) -> None:
    settings = secure_kafka.settings
    if wrong == "password":
        settings["ROOM_KAFKA__SASL_PASSWORD"] = "another-word"
    else:
        settings.pop("ROOM_KAFKA__CA_FILE")
    service, _ = await make_ingest(secure_kafka.kafka.bootstrap, True, wait=False, **settings)

    def ready() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{service.operations_port}/readyz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    async with asyncio.timeout(30):
        while "Kafka does not answer" not in (await asyncio.to_thread(ready))[1]:
            await asyncio.sleep(0.2)
    assert (await asyncio.to_thread(ready))[0] == 503
    assert service.lives()
    assert "another-word" not in service.output()
