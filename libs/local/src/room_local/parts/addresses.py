"""Free ports, and folders short enough for a unix socket."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import tempfile
from pathlib import Path

# sun_path holds 104 bytes on macOS and 108 on Linux, with the closing zero; this is the longest name we put in.
_LONGEST_FOLDER = 104 - 1 - len("/.s.PGSQL.5432.lock")

HOST = "127.0.0.1"


def free_port() -> int:
    """A TCP port nobody listens on now, and that no outgoing connection will be given.

    A port of the ephemeral range may be taken by any connection while its server restarts; worse, a client that keeps
    trying there can end up connected to itself.
    """
    low, high = 15_000, 32_000
    for _ in range(200):
        port = low + secrets.randbelow(high - low)
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def socket_folder(data: Path) -> Path:
    """Where a server with this data folder puts its unix socket: the data folder, or a short one if that is too long.

    The short folder lies in the system's folder for temporary files, is named after the data folder and belongs to us.
    """
    if len(os.fsencode(data)) <= _LONGEST_FOLDER:
        return data
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"room-{os.geteuid()}-{name}"
