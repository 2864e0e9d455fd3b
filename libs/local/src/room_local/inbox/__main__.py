"""``python -m room_local.inbox --port PORT --directory DIRECTORY``: the local inbox as a process of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from room_common.errors import ConfigurationError
from room_local.inbox.server import Inbox
from room_local.inbox.store import Store
from room_local.loopback import serve


def main() -> None:
    """Serve until SIGTERM or SIGINT. Exit 2 when the directory's file can't be used."""
    parser = argparse.ArgumentParser(prog="python -m room_local.inbox", description="Room's local inbox.")
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    parser.add_argument("--directory", type=Path, required=True, help="where the messages are kept")
    arguments = parser.parse_args()
    try:
        store = Store(arguments.directory)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    try:
        serve(Inbox(store).app(), arguments.port)
    finally:
        store.close()


if __name__ == "__main__":
    main()
