from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import certifi
import pytest
from faststream.security import SASLScram512
from pydantic import ValidationError

from room_common.errors import ConfigurationError
from room_common.kafka.security import broker_security, client_options
from room_common.kafka.settings import KafkaSettings, SecurityProtocol


def settings(**values: Any) -> KafkaSettings:
    return KafkaSettings(**({"bootstrap_servers": "kafka:9092"} | values))


def test_servers_are_checked_and_cleaned() -> None:
    assert settings(bootstrap_servers=" a:1, b:2 ,").bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize("servers", ["", " , ", "kafka", "kafka:", ":9092", "kafka:port", "kafka:0", "kafka:65536"])
def test_wrong_servers_are_refused(servers: str) -> None:
    with pytest.raises(ValidationError):
        settings(bootstrap_servers=servers)


@pytest.mark.parametrize(
    "values",
    [
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_SSL", "sasl_username": "u"},
        {"replication_factor": 1, "min_insync_replicas": 2},
        {"session_timeout_ms": 6000, "heartbeat_interval_ms": 3000},
        {"unknown": 1},
    ],
)
def test_contradictions_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**values)


def test_plain_connections_need_nothing_else() -> None:
    options = client_options(settings())
    assert options["security_protocol"] == "PLAINTEXT"
    assert options["ssl_context"] is None
    assert not any(name.startswith("sasl") for name in options)
    assert not broker_security(settings()).use_ssl


def test_sasl_over_tls() -> None:
    chosen = settings(
        security_protocol=SecurityProtocol.SASL_SSL,
        sasl_username="room",
        sasl_password="secret",
        ca_file=certifi.where(),
    )
    options = client_options(chosen)
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert options["sasl_plain_password"] == "secret"
    assert options["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert options["ssl_context"].check_hostname
    security = broker_security(chosen)
    assert isinstance(security, SASLScram512)
    assert security.use_ssl
    assert "secret" not in repr(chosen)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_bad_file_of_authorities_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match="ROOM_KAFKA__CA_FILE"):
        client_options(settings(security_protocol="SSL", ca_file=path))
