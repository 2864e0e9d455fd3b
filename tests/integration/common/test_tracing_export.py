"""Spans leave a process, and a collector that is away does not keep it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SERVICE = """
from room_common.service import Loop, run_service
from room_common.settings import OperationsSettings, ServiceSettings
from room_common.telemetry.tracing import span

class Once(Loop):
    name = "once"
    async def run(self):
        for _ in range(3000):
            with span("process events"):
                pass

settings = ServiceSettings(operations=OperationsSettings(host="127.0.0.1", port=0))
run_service("probe", settings, lambda context: [Once()])
"""


class Collector(ThreadingHTTPServer):
    """Notes what was sent to it, and answers with ``status``."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.received: list[tuple[str, bytes, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, body, self.headers["x-key"]))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(endpoint: str, **more: str) -> int:
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none", **more}
    return subprocess.run([sys.executable, "-c", SERVICE], env=env, timeout=60, check=False).returncode


def test_spans_are_sent_before_the_process_ends(collector: Collector, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("x-key=not-a-secret\n")
    assert run(f"http://127.0.0.1:{collector.server_port}", OTEL_EXPORTER_OTLP_HEADERS_FILE=str(headers)) == 1
    path, body, key = collector.received[-1]
    assert (path, key) == ("/v1/traces", "not-a-secret")
    for part in (b"process events", b"service.name", b"room-probe", b"service.version", b"service.instance.id"):
        assert part in body
    # More than the queue holds are dropped, not waited for.
    assert len(collector.received) < 3000 / 512 + 1


@pytest.mark.parametrize("away", ["nobody listens", "every batch is refused"])
def test_a_collector_in_trouble_does_not_keep_the_process(away: str, collector: Collector) -> None:
    collector.status = 500
    assert run("http://127.0.0.1:1" if away == "nobody listens" else f"http://127.0.0.1:{collector.server_port}") == 1


def test_a_file_of_headers_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    assert run("http://127.0.0.1:1", OTEL_EXPORTER_OTLP_HEADERS_FILE=str(tmp_path / "missing")) == 2
