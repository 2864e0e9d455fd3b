"""From aiokafka's errors to Room's: what the caller should do, with a bounded name for it."""

from __future__ import annotations

from typing import Final

from aiokafka import errors as kafka

from room_common.errors import DeadLetter, DependencyUnavailable

TOO_LARGE: Final = (kafka.MessageSizeTooLargeError, kafka.RecordTooLargeError, kafka.RecordListTooLargeError)

_KINDS: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    ((TimeoutError, kafka.KafkaTimeoutError, kafka.RequestTimedOutError), "timeout"),
    ((OSError, kafka.KafkaConnectionError, kafka.NodeNotReadyError, kafka.NoBrokersAvailable), "connect"),
    (
        (
            kafka.TopicAuthorizationFailedError,
            kafka.GroupAuthorizationFailedError,
            kafka.ClusterAuthorizationFailedError,
            kafka.SaslAuthenticationFailed,
            kafka.AuthenticationFailedError,
            kafka.AuthenticationMethodNotSupported,
            kafka.UnsupportedSaslMechanismError,
        ),
        "authorization",
    ),
    ((kafka.UnknownTopicOrPartitionError, kafka.InvalidTopicError), "unknown_topic"),
    ((kafka.NotEnoughReplicasError, kafka.NotEnoughReplicasAfterAppendError), "replicas"),
    (
        (
            kafka.OutOfOrderSequenceNumber,
            kafka.ProducerFenced,
            kafka.InvalidProducerEpoch,
            kafka.UnknownProducerId,
            kafka.InvalidProducerIdMapping,
            kafka.ProducerClosed,
        ),
        "producer_lost",
    ),
)


def failure_kind(error: BaseException) -> str:
    """A bounded name for how Kafka failed."""
    for classes, kind in _KINDS:
        if isinstance(error, classes):
            return kind
    return "error"


def send_failure(error: BaseException) -> DependencyUnavailable | DeadLetter:
    """What a failed send means to the caller: this record never fits, or the same record succeeds later."""
    if isinstance(error, DependencyUnavailable | DeadLetter):
        return error
    if isinstance(error, TOO_LARGE):
        return DeadLetter("too_large")
    return DependencyUnavailable("kafka", failure_kind(error))
