"""A service of the stack as a process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from room_local.parts.addresses import HOST
from room_local.parts.probe import http_status
from room_local.parts.server import Server
from room_local.services import ServiceSpec


class ServiceChild(Server):
    """``python -m module arguments``; ready when ``ready_path`` on ``ready_port`` says 200."""

    def __init__(
        self,
        spec: ServiceSpec,
        env: Mapping[str, str],
        *,
        arguments: Sequence[str],
        log: Path,
        cwd: Path,
        ready_port: int,
    ) -> None:
        super().__init__(cwd, log)
        self.name = spec.name
        self.ready_port = ready_port
        self.ready_path = spec.ready_path
        self.stop_timeout = spec.stop_seconds(env)
        self._spec = spec
        self._arguments = arguments
        self._env = env

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", self._spec.module, *self._arguments]

    def environment(self) -> Mapping[str, str]:
        return self._env

    def answers(self) -> bool:
        return http_status(HOST, self.ready_port, self.ready_path) == 200
