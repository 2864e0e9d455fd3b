"""Services as real processes in tests, armed with a crash point if wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from room_local.parts.addresses import HOST, free_port
from room_local.parts.probe import http_status
from room_local.parts.processes import wait_until
from room_local.parts.server import Server

CRASH_VARIABLE = "ROOM_TEST_CRASH"


class ServiceProcess(Server):
    """One process of a service: ``start`` returns when /readyz says 200, ``launch`` at once.

    ``crash="matcher.before_commit"`` makes it ``kill -9`` itself when it first reaches that crash point,
    ``"matcher.before_commit:3"`` the third time. Its environment is this process's without ROOM_* variables, plus
    ``env``.
    """

    stop_timeout = 20.0

    def __init__(
        self, package: str, env: Mapping[str, str], folder: Path, *, crash: str | None = None, number: int = 1
    ) -> None:
        super().__init__(folder, folder / f"{package}-{number}.log")
        self.name = f"{package}-{number}"
        self.package = package
        self.crash = crash
        self.env = dict(env)
        self.operations_port = int(env.get("ROOM_OPERATIONS__PORT") or free_port())

    def command(self) -> Sequence[str]:
        if self.crash is None:
            return [sys.executable, "-m", self.package]
        return [sys.executable, "-m", "room_testing.armed", self.package]

    def environment(self) -> Mapping[str, str]:
        ours = {"ROOM_OPERATIONS__HOST": HOST, "ROOM_OPERATIONS__PORT": str(self.operations_port)}
        crash = {CRASH_VARIABLE: self.crash} if self.crash is not None else {}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROOM_")}
        return {**inherited, "ROOM_LOG__FORMAT": "json", **ours, **self.env, **crash}

    def answers(self) -> bool:
        return http_status(HOST, self.operations_port, "/readyz") == 200

    def lives(self) -> bool:
        """Whether /livez says 200."""
        return http_status(HOST, self.operations_port, "/livez") == 200

    def wait_exit(self, timeout: float = 60) -> int:
        """Wait for its end; returns the exit code, -9 after a crash point. Raises ``TimeoutError``."""
        if not wait_until(lambda: self.exit_code is not None, timeout=timeout):
            raise TimeoutError(f"{self.name} still runs after {timeout:.0f} s; its log:\n{self.output()}")
        code = self.exit_code
        assert code is not None
        return code

    def output(self) -> str:
        """Everything it has printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
