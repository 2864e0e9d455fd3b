"""Spans leave a process, and a collector that is away does not keep it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.integration

SERVICE = """
from opentelemetry import trace
from room_common.service import Loop, run_service
from room_common.settings import OperationsSettings, ServiceSettings

class Once(Loop):
    name = "once"
    async def run(self):
        with trace.get_tracer("test").start_as_current_span("process events"):
            pass

settings = ServiceSettings(operations=OperationsSettings(host="127.0.0.1", port=0))
run_service("probe", settings, lambda context: [Once()])
"""


class Collector(ThreadingHTTPServer):
    """Notes what was sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
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


def run(endpoint: str) -> int:
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    return subprocess.run([sys.executable, "-c", SERVICE], env=env, timeout=60, check=False).returncode


def test_spans_are_sent_before_the_process_ends(collector: Collector) -> None:
    assert run(f"http://127.0.0.1:{collector.server_port}") == 1
    ((path, body),) = collector.received
    assert path == "/v1/traces"
    for part in (b"process events", b"service.name", b"room-probe", b"service.version", b"service.instance.id"):
        assert part in body


def test_a_collector_that_is_away_does_not_keep_the_process() -> None:
    assert run("http://127.0.0.1:1") == 1
