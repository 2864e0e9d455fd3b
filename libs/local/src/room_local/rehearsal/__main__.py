"""``python -m room_local.rehearsal --port PORT``: the rehearsal model as a process of its own."""

from __future__ import annotations

import argparse

from room_local.loopback import serve
from room_local.rehearsal.server import LONGEST_DELAY, Delay, Rehearsal


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m room_local.rehearsal", description="Room's rehearsal model.")
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="how long answers wait (default 0)")
    arguments = parser.parse_args()
    if not 0 <= arguments.delay <= LONGEST_DELAY:
        parser.error(f"--delay is from 0 to {LONGEST_DELAY:g}")
    serve(Rehearsal(Delay(arguments.delay)).app(), arguments.port)


if __name__ == "__main__":
    main()
