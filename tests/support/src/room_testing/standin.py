"""A service that does nothing, to test what starts and watches services: ``python -m room_testing.standin``.

It answers /readyz on its operations port. ``STANDIN=exit:CODE`` makes it end at once, ``STANDIN=deaf`` ignore SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def main() -> None:
    """Serve until SIGTERM."""
    mode, _, value = os.environ.get("STANDIN", "").partition(":")
    if mode == "exit":
        sys.exit(int(value))
    stop = signal.SIG_IGN if mode == "deaf" else lambda number, frame: sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ["ROOM_OPERATIONS__PORT"])
    HTTPServer(("127.0.0.1", port), _Ready).serve_forever()


if __name__ == "__main__":
    main()
