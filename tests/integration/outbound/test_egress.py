"""The egress client on real TLS: the certificate has to be that of the name, whatever address is behind it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from room_common.egress.client import EgressTransport
from room_common.egress.settings import EgressSettings

pytestmark = pytest.mark.integration

NAME = "hooks.example.test"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of one name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


class TlsServer:
    """Says which name and Host it was asked under."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[tuple[str | None, str]] = []
        self.sni: str | None = None

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((self.sni, request.headers["Host"]))
        return web.json_response({"ok": True})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[TlsServer, ssl.SSLContext]]:
    cert, key = certificate(tmp_path)
    served = TlsServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def note(_socket: object, name: str | None, _context: object) -> None:
        served.sni = name

    context.sni_callback = note
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    served.port = runner.addresses[0][1]
    yield served, ssl.create_default_context(cafile=str(cert))
    await runner.cleanup()


async def loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def test_the_name_is_what_is_checked(server: tuple[TlsServer, ssl.SSLContext]) -> None:
    served, trust = server
    inner = httpx.AsyncHTTPTransport(verify=trust, limits=httpx.Limits(max_keepalive_connections=0))
    settings = EgressSettings(allowed_networks=(ip_network("127.0.0.0/8"),))
    async with httpx.AsyncClient(transport=EgressTransport(settings, resolve=loopback, inner=inner)) as client:
        answer = await client.post(f"https://{NAME}:{served.port}/a", content=b"x")
        assert answer.json() == {"ok": True}
        assert served.asked == [(NAME, f"{NAME}:{served.port}")]
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await client.post(f"https://other.example.test:{served.port}/a", content=b"x")
    assert len(served.asked) == 1, "another name behind the same address gets no connection of this one's"
