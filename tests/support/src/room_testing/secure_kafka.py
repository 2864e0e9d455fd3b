"""Apache Kafka behind TLS and SASL, with certificates made on the spot."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from room_local.parts.addresses import HOST, free_port
from room_local.parts.kafka_apache import ApacheKafka

USER = "room"
PASSWORD = "not-a-secret"
_LOGIN = "org.apache.kafka.common.security"


class SecureKafka:
    """One broker with a second listener, ``SASL_SSL`` (SCRAM-SHA-512 and PLAIN). ``bootstrap`` is that one.

    ``reauthenticate_ms``: how long the broker believes a log-in; it closes connections that are older.
    """

    def __init__(self, folder: Path, *, reauthenticate_ms: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.pem"
        keys = folder / "broker.pem"
        _make_certificates(self.ca_file, keys)
        port = free_port()
        self.bootstrap = f"{HOST}:{port}"
        scram = f"listener.name.sasl_ssl.scram-sha-512.{_SASL}"
        self.kafka = ApacheKafka(
            folder / "kafka",
            folder / "logs",
            extra={
                "listeners": f"SASL_SSL://{HOST}:{port}",
                "advertised.listeners": f"SASL_SSL://{HOST}:{port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keys),
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
                scram: f"{_LOGIN}.scram.ScramLoginModule required;",
                f"listener.name.sasl_ssl.plain.{_SASL}": (
                    f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
                ),
                "connections.max.reauth.ms": str(reauthenticate_ms),
            },
            format_options=("--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"),
        )

    @property
    def settings(self) -> dict[str, str]:
        """What a service is given to log in."""
        return {
            "ROOM_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "ROOM_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "ROOM_KAFKA__SASL_USERNAME": USER,
            "ROOM_KAFKA__SASL_PASSWORD": PASSWORD,
            "ROOM_KAFKA__CA_FILE": str(self.ca_file),
        }


_SASL = "sasl.jaas.config"


def _make_certificates(ca_file: Path, broker_file: Path) -> None:
    """An authority, and a key and certificate for :data:`HOST` that it signed; valid for a day."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    now = datetime.now(UTC)

    def builder(name: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )

    authority = (
        builder(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    broker = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)]), key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    ca_file.write_bytes(authority.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    broker_file.write_bytes(private + broker.public_bytes(pem) + authority.public_bytes(pem))
