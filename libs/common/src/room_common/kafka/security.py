"""From the Kafka settings to what the clients take."""

from __future__ import annotations

import ssl
from typing import Any

from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from room_common.errors import ConfigurationError
from room_common.kafka.settings import KafkaSettings, SaslMechanism


def tls_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """The context of encrypted connections, None for plain ones. Host names are always checked.

    Raises ``ConfigurationError`` when the file of authorities can't be used.
    """
    if not settings.security_protocol.encrypted:
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"ROOM_KAFKA__CA_FILE: {settings.ca_file} is not a readable PEM file of certificates"
        ) from error


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Arguments that every aiokafka client takes: where, how encrypted, as whom, how patient."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol.value,
        "ssl_context": tls_context(settings),
        "request_timeout_ms": settings.request_timeout_ms,
        "retry_backoff_ms": 200,
        "metadata_max_age_ms": 60_000,
    }
    if settings.security_protocol.authenticated and settings.sasl_password is not None:
        options |= {
            "sasl_mechanism": settings.sasl_mechanism.value,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password.get_secret_value(),
        }
    return options


_SASL = {
    SaslMechanism.PLAIN: SASLPlaintext,
    SaslMechanism.SCRAM_SHA_256: SASLScram256,
    SaslMechanism.SCRAM_SHA_512: SASLScram512,
}


def broker_security(settings: KafkaSettings) -> BaseSecurity:
    """The same for FastStream's broker, which takes an object of its own."""
    context = tls_context(settings)
    encrypted = settings.security_protocol.encrypted
    if settings.security_protocol.authenticated and settings.sasl_username and settings.sasl_password is not None:
        return _SASL[settings.sasl_mechanism](
            username=settings.sasl_username,
            password=settings.sasl_password.get_secret_value(),
            ssl_context=context,
            use_ssl=encrypted,
        )
    return BaseSecurity(ssl_context=context, use_ssl=encrypted)
