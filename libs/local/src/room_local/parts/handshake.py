"""The smallest question to a Kafka broker: who is in the cluster."""

from __future__ import annotations

import socket
import struct

_METADATA = 3
_VERSION = 4


def broker_count(host: str, port: int, timeout: float = 2.0) -> int:
    """How many brokers this one knows to be alive; 0 when it does not answer within ``timeout`` seconds a step.

    Written by hand (Metadata version 4, as the protocol guide of Apache Kafka has it) so that waiting for a broker
    needs neither an event loop nor a client that logs each refusal.
    """
    client = b"room"
    body = struct.pack(">hhih", _METADATA, _VERSION, 1, len(client)) + client + struct.pack(">i?", 0, False)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = _exactly(connection, 16)
    except OSError:
        return 0
    # size, correlation id, throttle time, number of brokers
    return int(struct.unpack(">iiii", head)[3])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data
