from __future__ import annotations

import pytest
from aiokafka import errors as kafka

from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.kafka.failures import failure_kind, send_failure


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (kafka.KafkaTimeoutError(), "timeout"),
        (ConnectionRefusedError(), "connect"),
        (kafka.KafkaConnectionError(), "connect"),
        (kafka.TopicAuthorizationFailedError(), "authorization"),
        (kafka.UnknownTopicOrPartitionError(), "unknown_topic"),
        (kafka.NotEnoughReplicasError(), "replicas"),
        (kafka.OutOfOrderSequenceNumber(), "producer_lost"),
        (kafka.ProducerFenced(), "producer_lost"),
        (kafka.UnknownProducerId(), "producer_lost"),
        (kafka.KafkaError(), "error"),
        (RuntimeError(), "error"),
    ],
)
def test_errors_have_a_bounded_kind(error: BaseException, kind: str) -> None:
    assert failure_kind(error) == kind
    failure = send_failure(error)
    assert isinstance(failure, DependencyUnavailable)
    assert (failure.dependency, failure.kind) == ("kafka", kind)


@pytest.mark.parametrize("error", [kafka.MessageSizeTooLargeError(), kafka.RecordTooLargeError()])
def test_a_record_that_never_fits_is_dead(error: BaseException) -> None:
    failure = send_failure(error)
    assert isinstance(failure, DeadLetter)
    assert failure.kind == "too_large"


def test_our_own_errors_pass() -> None:
    error = DependencyUnavailable("kafka", "not_started")
    assert send_failure(error) is error
